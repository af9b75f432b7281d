"""The quick count against the one that runs through the graphs node by node."""

import random

import pytest
import torch

from retape.engines.eager.compiled import _node_traits
from retape.engines.eager.compiled._count import PlanCounter
from retape.engines.eager.compiled._liveness import account
from tests.engines.eager.compiled.joints import mlp, seen
from tests.engines.eager.support.allocator import peak_bytes


def branches(x):
    y = x.sin()
    z = torch.cat([y, x.cos().softmax(-1)])
    return (z @ z.t()).exp().sum() + y.view(-1)[:5].square().sum()


def convolution(x):
    image = x.view(1, 2, 8, 10)
    made = torch.nn.functional.conv2d(image, torch.ones(3, 2, 3, 3), padding=1)
    return made.tanh().square().mean()


MODEL = mlp(4)


@pytest.mark.parametrize("function", [MODEL, branches, convolution])
def test_both_counts_agree_on_random_plans(function):
    found = seen(lambda x: function(x).sum(), torch.ones(20, 8, requires_grad=True))
    joint, rng = found.joint, random.Random(0)
    counter = PlanCounter(joint, found.free)
    for share in (0.1, 0.4, 0.7, 0.9) * 10:
        keep = {k for k in counter.reached if rng.random() < share}
        quick, slow = counter(keep), account(joint, keep, found.free)
        assert (quick.peak, quick.cost) == (slow.peak, slow.cost)
        assert frozenset(quick.kept) == slow.keep
    assert counter.counted == 40


def test_what_is_alive_at_the_peak_adds_up_to_it():
    joint = seen(lambda x: MODEL(x).sum(), torch.ones(20, 8)).joint
    plan = PlanCounter(joint, ())(())
    held = sum(n for n, alive in zip(joint.nbytes, plan.alive, strict=True) if alive)
    assert held <= plan.peak <= held + max(joint.workspace)


def test_a_lie_about_bytes_is_seen():
    joint = seen(lambda x: MODEL(x).sum(), torch.ones(20, 8)).joint
    counter = PlanCounter(joint, ())
    counter._bytes[:] //= 2
    assert counter(()).peak != account(joint, (), ()).peak


_X, _Q = torch.rand(16, 16), torch.rand(2, 16, 16)
_ARGUMENTS = {
    "addmm": (_X[0], _X, _X),
    "bmm": (_Q, _Q),
    "baddbmm": (_Q, _Q, _Q),
    "threshold_backward": (_X, _X, 0),
    "_softmax": (_X, -1, False),
    "_log_softmax": (_X, -1, False),
    "_softmax_backward_data": (_X, _X, -1, torch.float32),
    "_log_softmax_backward_data": (_X, _X, -1, torch.float32),
    "cat": ([_X, _X],),
    "embedding": (_X, torch.arange(9)),
}


@pytest.mark.parametrize("kernel", sorted(_node_traits.WITHOUT_NUMBERS, key=str))
def test_a_kernel_said_to_take_nothing_takes_its_result_alone(kernel):
    name = kernel._schema.name.removeprefix("aten::")
    required = [a for a in kernel._schema.arguments if not a.has_default_value()]
    args = _ARGUMENTS.get(name, (_X,) * len(required))
    made = []
    measured = peak_bytes(lambda: made.append(kernel(*args)))
    assert measured == made[0].untyped_storage().nbytes()


@pytest.mark.parametrize("kernel", sorted(_node_traits.WITH_ONE_NUMBER, key=str))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_kernel_said_to_wrap_one_number_wraps_no_more(kernel, dtype):
    x = _X.to(dtype)
    others = {"mean.default": ((),), "mean.dim": (([0],),)}
    for more in others.get(str(kernel).removeprefix("aten."), ((0.5,), (2,))):
        measured = peak_bytes(lambda m=more: kernel(x, *m))
        made = kernel(x, *more).untyped_storage().nbytes()
        assert measured - made <= 8 + x.element_size()
    if "Tensor" in kernel._overloadname and "Scalar" not in kernel._overloadname:
        assert peak_bytes(lambda: kernel(x, x)) == x.untyped_storage().nbytes()

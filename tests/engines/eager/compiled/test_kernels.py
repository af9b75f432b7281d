"""What kernels are said to take inside, against what the allocator counts."""

import pytest
import torch

from retape.engines.eager.compiled import _node_traits
from tests.judges.torch.allocator import peak_bytes

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

"""`mode="loop"`: exact where it runs, and refusing by name where it does not."""

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn

from retape import BudgetError, MachineError, UnsupportedError
from retape.torch import recompute
from tests.judges.torch.allocator import peak_bytes
from tests.judges.torch.hard import PROGRAMS
from tests.schedule.numbers import optimal_advances


def test_two_blocks_of_one_parameter_differ_in_the_last_bit_only() -> None:
    """Autograd adds two sums instead of one."""
    program = PROGRAMS["graph_over_two_runs"]
    plain = program(contextlib.nullcontext)
    found = program(lambda: recompute(mode="loop", snapshots=3, stage=6))
    for a, b in zip(plain, found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def test_a_tensor_from_the_middle_of_a_loop_is_not_in_the_graph() -> None:
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        PROGRAMS["partial_backward"](lambda: recompute(mode="loop", memory=160_000))


def run_in(limits: dict[str, Any], steps: int) -> Any:
    torch.manual_seed(0)
    cell, inputs = nn.LSTMCell(4, 64), torch.randn(steps, 8, 4)
    zero = torch.zeros(8, 64)
    for parameter in cell.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def run() -> Any:
        h = c = zero
        with recompute(mode="loop", **limits) as under:
            for t in range(steps):
                h, c = cell(inputs[t], (h, c))
            loss = h.square().mean() + c.mean()
        loss.backward()
        return under.report

    return run


@pytest.mark.parametrize("steps", [20, pytest.param(150, marks=pytest.mark.slow)])
def test_the_least_of_a_loop_is_enough_however_long_it_is(steps: int) -> None:
    """What waits for the next snapshot grew with the length of the loop, once."""
    with pytest.raises(BudgetError) as refused:
        run_in({"memory": 1}, steps)()
    least = refused.value.least
    assert least is not None
    reports: list[Any] = []
    run = run_in({"memory": least}, steps)
    assert peak_bytes(lambda: reports.append(run())) <= least
    # Where one call is reversed at a time, what it takes was reckoned twice, once.
    assert reports[0].planted > 0


def test_a_loop_in_few_snapshots_does_no_more_than_the_optimum_doubled() -> None:
    report = run_in({"snapshots": 4, "stage": 8}, 100)()
    stages = -(-report.steps // 8)
    least = 8 * optimal_advances(stages, 4)
    assert report.stages >= stages
    assert report.recomputed - report.steps <= 2 * least


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x * 2


def statistics(x: Tensor) -> Tensor:
    mean, scale = torch.zeros(4), torch.ones(4)
    return torch.native_batch_norm(x, None, None, mean, scale, True, 0.1, 1e-5)[0]


def observed(x: Tensor) -> Tensor:
    on, none = torch.ones(1, dtype=torch.long), torch.zeros(1, dtype=torch.int32)
    low, high, scale = torch.zeros(1), torch.ones(1), torch.ones(1)
    return torch.fused_moving_avg_obs_fake_quant(
        x, on, on, low, high, scale, none, 0.1, 0, 255, -1
    )


def chosen(x: Tensor) -> Tensor:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return nn.functional.scaled_dot_product_attention(x, x, x)


def dual(x: Tensor) -> Tensor:
    with forward_ad.dual_level():
        return forward_ad.make_dual(x, x)


def unseen_draw(x: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():
        return torch.rand(3)


def unseen_write(x: Tensor) -> Tensor:
    h, y = x * W, torch.sin(x)
    with torch._C.DisableTorchFunction():
        W.add_(1)
    return h * y * W


def under_autocast(x: Tensor) -> Tensor:
    with torch.autocast("cpu"):
        return x @ x


def tripled(x: Tensor) -> Tensor:
    return x * 3


def scripted(x: Tensor) -> Tensor:
    return torch.tanh(torch.jit.script(tripled)(x))


def in_a_thread(x: Tensor) -> Tensor:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.sin, x).result() * x


def unseen(x: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():
        return x[0].exp()


def read_much_later(x: Tensor) -> Tensor:
    found, y = unseen(x), torch.ones(4)
    del x
    for _ in range(100):
        y = y.sin()
    return found * y


W = torch.ones(4, 4)
REFUSED: dict[str, tuple[Callable[[Tensor], object], type[Exception], str]] = {
    "statistics": (statistics, UnsupportedError, "mode='loop'"),
    "observed": (observed, UnsupportedError, "mode='loop'"),
    "chosen kernel": (chosen, UnsupportedError, "mode='loop'"),
    "sparse": (
        lambda x: torch.eye(4).to_sparse() @ x, UnsupportedError, "mode='loop'",
    ),
    "dual": (dual, UnsupportedError, "mode='loop'"),
    "in place": (lambda x: x.add_(1), UnsupportedError, "`add_` was called under"),
    "autocast": (under_autocast, UnsupportedError, "under autocast"),
    "own function": (Twice.apply, UnsupportedError, "inside an `autograd.Function`"),
    "unseen draw": (unseen_draw, UnsupportedError, "random numbers were drawn"),
    "unseen write": (unseen_write, MachineError, "overwritten in place"),
    "TorchScript": (scripted, UnsupportedError, "cannot be noted"),
    "a thread": (in_a_thread, UnsupportedError, "cannot be noted"),
    "code of C++": (unseen, UnsupportedError, "cannot be noted"),
    "read much later": (read_much_later, UnsupportedError, "cannot be noted"),
    "vmap": (torch.func.vmap(torch.sin), UnsupportedError, "`torch.func`"),
    "vjp": (
        lambda x: torch.func.vjp(torch.sin, x)[1](x), UnsupportedError, "under",
    ),
    "a leaf": (
        lambda x: torch.ones(3, requires_grad=True).sum(), UnsupportedError,
        "before the block",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize("name", REFUSED)
def test_what_a_loop_cannot_run_again_is_refused(name: str) -> None:
    call, error, words = REFUSED[name]
    w = torch.eye(4).requires_grad_()
    with pytest.raises(error, match=words), recompute(mode="loop", memory="1MB"):
        left = call(w @ w)  # as the program may hold it
        assert left is not None


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_unseen_code_may_read_what_the_loop_has_not_made() -> None:
    """Its results begin no graph in the loop, or none at all."""
    found = []
    for under in (contextlib.nullcontext(), recompute(mode="loop", memory="1MB")):
        w = torch.eye(4).requires_grad_()
        with under:
            h = w @ w
            with torch.no_grad():
                mask = unseen(h)
            a, b = torch.broadcast_tensors(w, mask)
            loss = (h * a * b * scripted(w)).sum()
        found.append(torch.autograd.grad(loss, w)[0])
    torch.testing.assert_close(*found)


def batched(h: Tensor, w: Tensor) -> None:
    rows = torch.ones(2, 4, 4)
    torch.func.vmap(lambda g: torch.autograd.grad(h, w, g)[0])(rows)


def twice(h: Tensor, w: Tensor) -> None:
    for _ in range(2):
        h.sum().backward(retain_graph=True)


BACKWARDS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "inside of a transform": batched,
    "reversed twice": twice,
    "create_graph=True": lambda h, w: torch.autograd.grad(
        h.sum(), w, create_graph=True
    ),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize("words", BACKWARDS)
def test_a_backward_that_a_loop_has_not_is_refused(words: str) -> None:
    w = torch.eye(4).requires_grad_()
    with recompute(mode="loop", memory="1MB"):
        h = torch.tanh(w @ w)
    with pytest.raises(UnsupportedError, match=words):
        BACKWARDS[words](h, w)


def test_what_the_program_asks_of_tensors_is_answered() -> None:
    w, x = torch.ones(2, requires_grad=True), torch.ones(2)
    with recompute(memory="1MB", mode="loop"):
        assert (w * x).requires_grad
        assert not (x * x).requires_grad
        with torch.no_grad():
            assert not (w * x).requires_grad
        loss = (w * x).sum()
    assert loss.requires_grad
    loss.backward()
    assert w.grad is not None and torch.equal(w.grad, torch.ones(2))


def test_an_inference_tensor_is_a_constant() -> None:
    """It has no counter of writes, and ended in an error of PyTorch's."""
    with torch.inference_mode():
        constant = torch.full((4,), 0.5)

    def gradient(under: Any) -> Tensor:
        h = w = torch.ones(4, requires_grad=True)
        with under:
            for _ in range(6):
                h = torch.sin(h + constant)
            loss = h.sum()
        loss.backward()
        assert w.grad is not None
        return w.grad

    found = gradient(recompute(mode="loop", snapshots=1, stage=1))
    assert torch.equal(found, gradient(contextlib.nullcontext()))


LATE: dict[str, Callable[[Tensor], object]] = {
    "a hook": lambda h: h.register_hook(lambda g: 2 * g),
    "its gradient": lambda h: h.retain_grad(),
}


@pytest.mark.parametrize("late", LATE)
def test_a_hook_put_on_later_is_called_as_without_the_loop_or_refused(
    late: str,
) -> None:
    """It saw a part of the gradient, and what it made of that went nowhere."""

    def run(under: Any, leads_on: bool) -> tuple[Tensor, ...]:
        w = torch.eye(4).requires_grad_()
        with under:
            h = torch.tanh(w @ w)
            with torch.set_grad_enabled(leads_on):
                last = h.sin().sum()
            last = last + w.sum()
        LATE[late](h)
        (h.cos().sum() + last).backward()
        assert w.grad is not None
        return w.grad, h.grad if h.retains_grad else w

    def loop() -> Any:
        return recompute(mode="loop", memory="1MB")

    plain = run(contextlib.nullcontext(), False)
    assert all(map(torch.equal, run(loop(), False), plain))
    with pytest.raises(UnsupportedError, match="of its gradient"):
        run(loop(), True)


# What has no gradient, made of what has one.
WITHOUT: dict[str, Callable[[Tensor], Any]] = {
    "detach": lambda h: h.detach(),
    "data": lambda h: h.data,
    "zeros_like": torch.zeros_like,
    "rand_like": torch.rand_like,
    "full_like": lambda h: torch.full_like(h, 2.0),
    "new_ones": lambda h: h.new_ones(h.shape),
    "no_grad": torch.no_grad()(lambda h: h * 2),
}
# They have no derivative.
UNDERIVED: dict[str, Callable[[Tensor], Any]] = {
    "unique": lambda d: torch.unique(d.round(), return_counts=True)[0].sum(),
    "histc": lambda d: torch.histc(d, 4).sum(),
    "heaviside": lambda d: torch.heaviside(d, d).mean(),
    "nextafter": lambda d: torch.nextafter(d, d + 1).sum(),
}


@pytest.mark.parametrize("cut", WITHOUT)
@pytest.mark.parametrize("underived", UNDERIVED)
@pytest.mark.parametrize("limits", [{"snapshots": 2, "stage": 2}, {"memory": "90kB"}])
def test_what_has_no_derivative_may_be_given_what_has_no_gradient(
    cut: str, underived: str, limits: dict[str, Any]
) -> None:
    w, x = torch.linspace(-1, 1, 64).view(8, 8).requires_grad_(), torch.ones(4, 8)
    found, asked = [], []
    for under in (contextlib.nullcontext(), recompute(mode="loop", **limits)):
        torch.manual_seed(0)
        with under:
            h = x
            for _ in range(6):
                h = (h @ w).tanh()
                d = WITHOUT[cut](h)
                asked.append(d.requires_grad)
                made = UNDERIVED[underived](d)
                h = h + 0.01 * made + 0.01 * (d * 2).mean()
            loss = h.sum()
        found.append(torch.autograd.grad(loss, w)[0])
    assert torch.equal(*found) and not any(asked)


def test_what_has_a_forward_derivative_is_refused() -> None:
    with forward_ad.dual_level():
        x = forward_ad.make_dual(torch.ones(2), torch.ones(2))
        with pytest.raises(UnsupportedError, match="make_dual"):
            with recompute(mode="loop", memory="1MB"):
                x.sin()


SPECTRA = {
    "svdvals": torch.linalg.svdvals,
    "eigvalsh": lambda a: torch.linalg.eigvalsh(a @ a.mT),
    "norm": lambda a: torch.linalg.norm(a, "nuc") + torch.norm(a, p="nuc"),
    "matrix_norm": lambda a: torch.linalg.matrix_norm(a, 2) + torch.linalg.cond(a),
}


@pytest.mark.parametrize("name", SPECTRA)
def test_spectra_in_a_loop_have_the_bits_of_the_plain_ones(name: str) -> None:
    """They round in another way where no graph is made."""

    def found(under: Any) -> list[Tensor]:
        torch.manual_seed(0)
        w = torch.randn(24, 24, requires_grad=True)
        with under:
            h = w
            for _ in range(4):
                h = torch.tanh(0.1 * h @ w + 0.01 * SPECTRA[name](h).sum().log1p())
            loss = h.square().sum()
        return [loss.detach(), *torch.autograd.grad(loss, w)]

    under = recompute(mode="loop", snapshots=1, stage=1)
    assert all(map(torch.equal, found(contextlib.nullcontext()), found(under)))

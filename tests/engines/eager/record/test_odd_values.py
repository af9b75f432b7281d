"""Values that are resized, handed out, or change where no operator shows it."""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import retape.torch
from retape import MachineError

Program = Callable[[Tensor, Any], Tensor]


def gradient(program: Program, under: Any) -> Tensor:
    torch.manual_seed(0)
    w = torch.randn(8, 8, requires_grad=True)
    with under:
        h = torch.randn(4, 8)
        for k in range(5):
            h = program(torch.tanh(h @ w), k)
        loss = h.square().sum()
    loss.backward()
    assert w.grad is not None
    return w.grad


def check(program: Program, **more: Any) -> None:
    """Compare with plain where all is kept, and where all is computed again."""
    plain = gradient(program, contextlib.nullcontext())
    assert torch.equal(plain, gradient(program, retape.torch.recompute(memory="1MB")))
    tight = retape.torch.recompute(snapshots=1, stage=4, **more)
    assert torch.equal(plain, gradient(program, tight))


def smaller(h: Tensor, k: int) -> Tensor:
    """The tensor gets another size, its memory stays."""
    rows = h.detach().clone().resize_(6, 4)
    rows.resize_(2, 16)
    storage, other = h.detach().clone().untyped_storage(), torch.empty(0)
    other.set_(storage, 8, (2, 8))  # type: ignore[call-overload]
    return h + 0.1 * rows.reshape(4, 8) + 0.01 * other.add_(1).sum()


def larger(h: Tensor, k: int) -> Tensor:
    """It gets more memory, and keeps what it had."""
    row = h.detach()[0].clone()
    row.resize_(40)
    return h + 0.1 * row[:8]


def elsewhere(h: Tensor, k: int) -> Tensor:
    """`out=` of another size."""
    most, where = torch.empty(64), torch.empty(0, dtype=torch.long)
    most.resize_(0)
    torch.max(h.detach(), 1, out=(most, where))
    return h + 0.1 * most[:, None] + 0.01 * where[:, None]


@pytest.mark.parametrize("program", [smaller, larger, elsewhere])
@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.usefixtures("accelerated")
def test_what_is_resized_is_resized_again(program: Program, verify: bool) -> None:
    check(program, verify=verify)


def quantized(h: Tensor, k: int) -> Tensor:
    """A tensor with a scale, which its memory does not show."""
    steps = torch.quantize_per_tensor(h.detach(), 0.1, 3, torch.qint8)
    return h + 0.1 * steps.dequantize()


def quantized_by_rows(h: Tensor, k: int) -> Tensor:
    scales, zeros = torch.full((4,), 0.1), torch.zeros(4, dtype=torch.long)
    rows = torch.quantize_per_channel(h.detach(), scales, zeros, 0, torch.qint8)
    return h * rows.dequantize() + 0.01 * rows.int_repr().float()


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize("program", [quantized, quantized_by_rows])
@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.usefixtures("accelerated")
def test_quantized_values_are_held(program: Program, verify: bool) -> None:
    check(program, verify=verify)


def test_a_value_that_numpy_has_only_read_is_computed_again() -> None:
    def logged(h: Tensor, k: int) -> Tensor:
        assert np.isfinite(h.detach().numpy()).all()
        return h * 1.1

    plain = gradient(logged, contextlib.nullcontext())
    run = retape.torch.recompute(snapshots=1, stage=4)
    assert torch.equal(plain, gradient(logged, run))
    assert run.report.recomputed > 0
    assert "numpy" not in vars(torch.Tensor)  # as it was before


def folded(h: Tensor, k: int) -> Tensor:
    """The kernel makes more than it gives, and does not write all of it."""
    images = h.view(1, 1, 4, 8).expand(2, 2, 4, 8)
    seen = F.fold(F.unfold(images, 3, padding=1), (4, 8), 3, padding=1)
    return h + 0.01 * seen.sum((0, 1))


def spoken(h: Tensor, k: int) -> Tensor:
    chances = h.view(4, 1, 8).log_softmax(-1).expand(4, 3, 8)
    text = torch.tensor([[1, 2], [3, 3], [4, 0]])
    lengths = torch.tensor([2, 1, 1])
    return h + 0.01 * F.ctc_loss(chances, text, torch.full((3,), 4), lengths)


def nothing_added(h: Tensor, k: int) -> Tensor:
    return torch.sin(h + torch._efficientzerotensor((4, 8)))  # type: ignore[attr-defined]


@pytest.mark.parametrize("program", [folded, spoken, nothing_added])
def test_no_alarm_where_memory_is_not_written(program: Program) -> None:
    check(program, verify=True)


@pytest.mark.usefixtures("accelerated")
def test_random_steps_are_run_again_in_a_backward_under_vmap() -> None:
    def jacobian(under: Any) -> Tensor:
        torch.manual_seed(0)
        w = torch.randn(8, 8, requires_grad=True)
        with under:
            h = torch.ones(2, 8)
            for _ in range(5):
                h = F.dropout(torch.tanh(h @ w), 0.3)
        rows = torch.eye(16).view(16, 2, 8)
        return torch.autograd.grad(h, w, rows, is_grads_batched=True)[0]

    plain = jacobian(contextlib.nullcontext())
    assert torch.equal(plain, jacobian(retape.torch.recompute(snapshots=1, stage=4)))


def weight() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(8, 8, requires_grad=True)


def tight(**more: Any) -> Any:
    return retape.torch.recompute(snapshots=1, stage=2, **more)


def under_another_default_type(under: Any) -> Tensor:
    """Factories and quotients of integers take the default type of their moment."""
    w = weight()
    with under:
        h = torch.ones(4, 8) @ w
        for _ in range(4):
            torch.set_default_dtype(torch.float64)
            third, half = torch.arange(8) / 3, torch.full((8,), 0.5)
            torch.set_default_dtype(torch.float32)
            h = torch.sin(h * third.float() + half.float() * (torch.arange(8) / 7)) @ w
        loss = h.square().sum()
    torch.set_default_dtype(torch.float64)
    try:
        loss.backward()
    finally:
        after = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
    assert after is torch.float64 and w.grad is not None
    return w.grad


def test_factories_are_run_again_under_the_default_type_of_their_moment(
    accelerated: bool,
) -> None:
    plain = under_another_default_type(contextlib.nullcontext())
    assert torch.equal(plain, under_another_default_type(tight()))


@pytest.mark.parametrize("inside", [False, True])
def test_another_memory_for_a_parameter_is_refused(
    inside: bool, accelerated: bool
) -> None:
    for make in (tight, lambda: retape.torch.recompute(memory="1MB")):
        w, under = weight(), make()
        with under:
            h = torch.ones(4, 8) @ w
            for k in range(6):
                h = torch.sin(h) @ w.sin()
                if inside and k == 3:
                    w.data = torch.randn(8, 8)
            loss = h.square().sum()
        w.data = torch.randn(8, 8)
        with pytest.raises(MachineError, match=r"given another memory"):
            loss.backward()

"""Values that change where no operator shows it: right, or refused by name."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import retape.torch
from retape import BudgetError, MachineError


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


def filled_in_slices(under: Any) -> Tensor:
    """A buffer without values, filled part by part, as solvers of ODEs do."""
    w = weight()
    with under:
        h = torch.ones(4, 8) @ w
        for _ in range(3):
            rows, halves = torch.empty(4, 8), torch.empty_like(h)
            for j in range(4):
                rows[j] = torch.sin(h[j])
            h = torch.tanh(rows) @ w
            halves[:2], halves[2:] = h[:2] * 2, h[2:].sin()
            h = halves * h
        loss = h.square().sum()
    loss.backward()
    assert w.grad is not None
    return w.grad


@pytest.mark.parametrize("limits", [{"stage": 2}, {"stage": 2**60}])
def test_a_check_of_values_raises_no_false_alarm(limits: dict[str, int]) -> None:
    plain = filled_in_slices(contextlib.nullcontext())
    for _ in range(3):  # memory without values is another one each time
        under = retape.torch.recompute(snapshots=1, verify=True, **limits)
        assert torch.equal(plain, filled_in_slices(under))
        assert under.report.recomputed > 0


def maml(first_order: bool) -> tuple[list[Tensor], Callable[[], Tensor]]:
    """A step of meta-learning: its inner backward runs inside of the block."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        *[m for _ in range(2) for m in (torch.nn.Linear(32, 32), torch.nn.Tanh())]
    )
    params, x, y = dict(net.named_parameters()), torch.randn(64, 32), torch.randn(32)

    def error(weights: Any) -> Tensor:
        return (torch.func.functional_call(net, weights, (x,)) - y).square().mean()

    def step() -> Tensor:
        fast: dict[str, Any] = dict(params)
        for _ in range(5):
            loss, names = error(fast), list(fast)
            grads = torch.autograd.grad(
                loss, list(fast.values()), create_graph=not first_order
            )
            fast = {k: fast[k] - 0.1 * g for k, g in zip(names, grads, strict=True)}
        return error(fast)

    return list(params.values()), step


@pytest.mark.slow("False")
@pytest.mark.parametrize("first_order", [False, True])
def test_a_budget_that_was_named_or_held_is_never_refused(first_order: bool) -> None:
    params, step = maml(first_order)

    def gradients(under: Any) -> list[Tensor]:
        with under:
            loss = step()
        return list(torch.autograd.grad(loss, params))

    plain = gradients(contextlib.nullcontext())
    with pytest.raises(BudgetError) as caught, retape.torch.recompute(memory=100):
        kept = step()
    assert kept.requires_grad
    del kept
    ample = retape.torch.recompute(memory="1GB")
    gradients(ample)
    least, enough = caught.value.least, ample.report.peak_bytes
    for share in (0, 0.02, 0.1, 0.2, 1) if enough > least else (0, 1):
        memory = int(least + share * (enough - least))
        for _ in range(5):
            under = retape.torch.recompute(memory=memory)
            found = gradients(under)
            assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))
            assert under.report.peak_bytes <= memory

"""Gradients of PyTorch programs that go wrong: operator, module and line are named."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import retape
import retape.torch

Layer = Callable[[Tensor], Tensor]
inside = partial(checkpoint, use_reentrant=False)


class Net(torch.nn.Module):
    """Six layers, one of which does something else besides."""

    def __init__(self, spoil: Layer) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(Block(spoil, k == 3) for k in range(6))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


class Block(torch.nn.Module):
    """A layer, perhaps with a fault."""

    def __init__(self, spoil: Layer, faulty: bool) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.spoil = spoil if faulty else None

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.linear(x))
        return x if self.spoil is None else self.spoil(x)


X = torch.linspace(-1.0, 1.0, 32).reshape(4, 8)


# Seeded faults: the operator that is to be named, and its line. ----------------------


def masked_quotient(x: Tensor) -> Tensor:
    zero = x - x
    return torch.where(zero == 0, x, x / zero)


class Own(torch.autograd.Function):
    """A function of the user's own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g / 0.0


def in_place(x: Tensor) -> Tensor:
    y = x * 0.0
    y.sqrt_()
    return x + y


# By the operator that is to be named, and what is done.
FAULTS: dict[str, Layer] = {
    "SqrtBackward0, masked": lambda x: x + torch.where(x > 2, F.relu(x - 2).sqrt(), 0),
    "DivBackward0": masked_quotient,
    "SqrtBackward0, length": lambda x: x + torch.sqrt((x * 0).square().sum(1, True)),
    "PowBackward0": lambda x: x + (x * 0.0) ** 0.5,
    "LinalgEighBackward0": lambda x: x @ torch.linalg.eigh(x.T @ x * 0.0)[1],
    "AsinBackward0": lambda x: x + torch.asin(x * 0.0 + 1.0),
    "OwnBackward": lambda x: Own.apply(x),  # pyright: ignore
    "AcoshBackward0": lambda x: x + torch.acosh(x * 0.0 + 1.0),
    "SqrtBackward0, in place": in_place,
    "SqrtBackward0, beneath": lambda x: inside(lambda x: x + torch.sqrt(x * 0.0), x),
}
LINES: dict[Layer, str] = {in_place: "y.sqrt_()"}


def line_of(spoil: Layer) -> str:
    return LINES.get(spoil) or inspect.getsource(spoil).strip().split("\n")[-1].strip()


@pytest.mark.parametrize("recomputed", [False, True])
@pytest.mark.parametrize("name", FAULTS)
def test_a_derivative_that_is_not_finite(name: str, recomputed: bool) -> None:
    """The loss is finite: only the way back knows."""
    spoil = FAULTS[name]
    net = Net(spoil)
    run: Any = net
    if recomputed and "beneath" not in name:
        run = retape.torch.recompute(snapshots=3, stage=4)(net)
    health = retape.torch.diagnose(run, X)
    fault = health.fault
    assert fault is not None and fault.kind == "reverse"
    assert fault.operation == name.split(",")[0]
    assert fault.text in (line_of(spoil), line_of(spoil).split("  # pyright")[0])
    assert "test_diagnose.py:" in fault.line and fault.variable == "layers.3 (Block)"
    assert 0 <= fault.before < 1 and fault.after == float("inf")
    assert all(p.grad is None for p in net.parameters())


def fine(x: Tensor) -> Tensor:
    return x + 0.0


def test_all_is_well() -> None:
    health = retape.torch.diagnose(Net(fine), X)
    assert health.fault is None and str(health).endswith("fault     none")
    assert 10 < len(health.norms) <= 32 and min(health.norms) > 0


def test_the_step_counts_operators_with_a_derivative() -> None:
    x = torch.ones(3, requires_grad=True)

    def loss() -> Tensor:
        y = x.detach().sin()
        z = x * 2.0
        for _ in range(50):
            z = z * 1.0 + y.detach()
        z = z + torch.sqrt(z * 0.0)
        for _ in range(50):
            z = z * 1.0
        return z.sum()

    health = retape.torch.diagnose(loss)
    assert health.fault is not None and health.steps_per_norm == 5
    assert (health.fault.step, health.fault.steps) == (
        1 + 100 + 1,
        1 + 100 + 3 + 50 + 1,
    )


def test_a_step_that_explodes() -> None:
    def loud(x: Tensor) -> Tensor:
        return torch.sin(1e9 * x)

    net = Net(loud)
    fault = retape.torch.diagnose(net, X).fault
    assert fault is not None and fault.kind == "growth"
    assert fault.operation == "MulBackward0" and fault.text == line_of(loud)
    assert fault.after > 1e6 * fault.before
    assert retape.torch.diagnose(net, X, growth=1e12).fault is None


def test_a_value_that_is_not_finite() -> None:
    def logarithm(x: Tensor) -> Tensor:
        return torch.log(x - 100.0)

    for run in (Net(logarithm), retape.torch.recompute(snapshots=3)(Net(logarithm))):
        fault = retape.torch.diagnose(run, X).fault
        assert fault is not None and fault.kind == "forward"
        assert fault.operation == "log.default" and fault.text == line_of(logarithm)
        assert fault.variable == "layers.3 (Block)" and "-100" in fault.operands


def test_infinity_that_is_meant_and_that_is_not() -> None:
    """A mask is no fault; what is lost of it is, and so is an overflow behind it."""

    def masked(x: Tensor) -> Tensor:
        x = torch.softmax(x.masked_fill(x > 0.1, -torch.inf), 1)
        return x * torch.exp(x + 999)

    def nothing_left(x: Tensor) -> Tensor:
        x = x + torch.log(x * 0).clamp(0, 1)
        return torch.softmax(x + torch.full((8,), -torch.inf), 1)

    def two(x: Tensor) -> Tensor:
        bounded = torch.log(x * 0).clamp(0, 1)
        return x + bounded + torch.exp(x * 0 + 999).view(-1).view_as(x) * 0

    told = {masked: "exp.default", nothing_left: "_softmax", two: "exp.default"}
    for spoil, operation in told.items():
        fault = retape.torch.diagnose(Net(spoil), X).fault
        assert fault is not None and fault.kind == "forward"
        assert operation in fault.operation and fault.text == line_of(spoil)


NORM = torch.nn.BatchNorm1d(8)


def by_closure(model: torch.nn.Module) -> Any:
    return lambda x: model(x)


def by_a_function_inside(model: torch.nn.Module) -> Any:
    def call(x: Tensor) -> Tensor:
        def inner() -> Tensor:
            return NORM(x)

        return model[1](inner())  # type: ignore[operator, index]

    return call


@pytest.mark.parametrize("reads", [lambda m: m, by_closure, by_a_function_inside])
def test_a_second_run_is_alike(reads: Any) -> None:
    """Dropout draws the same, and statistics are those of one call."""
    norm, drop = NORM, torch.nn.Dropout(0.5)
    norm.reset_running_stats()

    def root(x: Tensor) -> Tensor:
        return x + torch.sqrt(drop(x).relu())

    model = torch.nn.Sequential(norm, Net(root))
    torch.manual_seed(5)
    fault = retape.torch.diagnose(reads(model), X).fault
    assert fault is not None and fault.operation == "SqrtBackward0"
    assert (fault.variable or "").endswith("layers.3 (Block)")
    assert norm.num_batches_tracked == 1


class Keeper(torch.autograd.Function):
    """A function that keeps something by the name that leaves have."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.variable = x.detach()
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g


def test_what_a_function_keeps_is_no_leaf() -> None:
    x = torch.zeros(3, requires_grad=True)
    fault = retape.torch.diagnose(lambda: Keeper.apply(x.sqrt()).sum()).fault  # pyright: ignore
    assert fault is not None and fault.operation == "SqrtBackward0"
    assert fault.steps == 3


def test_how_many_operators_there_are_between_two_looks() -> None:
    x = torch.ones(3, requires_grad=True)

    def loss(factor: float = 1.0) -> Tensor:
        y = x
        for k in range(99):
            y = y * {50: factor, 49: 1 / factor}.get(k, 1.0)
        return y.sum()

    health = retape.torch.diagnose(loss, 1e9)
    assert health.fault is None and health.steps_per_look == 4
    assert "looked at every 4 steps" in str(health)


def test_tensors_of_other_kinds() -> None:
    table = torch.nn.Embedding(9, 4, sparse=True)
    z = torch.ones(3, dtype=torch.complex128, requires_grad=True)

    def loss() -> Tensor:
        half = table(torch.arange(3)).bfloat16().float().sum()
        return (
            half
            + (z * z).abs().sum().float()
            + torch.ones(0, 3, requires_grad=True).sum()
        )

    assert retape.torch.diagnose(loss).fault is None


def test_a_function_that_does_something_else_each_time() -> None:
    calls = itertools.count()
    x = torch.ones(3, requires_grad=True)

    def loss() -> Tensor:
        return (x * (0.0 if next(calls) == 0 else 1.0)).sqrt().sum()

    with pytest.raises(
        retape.DeterminismError, match="when the function was called ag"
    ):
        retape.torch.diagnose(loss)

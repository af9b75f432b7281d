"""Graphs: gradients inside, several of them, hooks, functions of one's own."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.judges.torch.hard.table import (
    Under,
    of,
    parameter,
    program,
    with_grads,
)


class Cubed(torch.autograd.Function):
    """Saves an input and an output, and keeps a number on the context."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        y = (x * scale) ** 3
        ctx.save_for_backward(x, y)
        ctx.scale = scale
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        x, _ = ctx.saved_tensors
        return grad * 3 * ctx.scale**3 * x * x, None


@of(8, 8)
def custom_functions(w: Tensor) -> Tensor:
    h = torch.randn(4, 8)
    for k in range(8):
        h = torch.tanh(Cubed.apply(h @ w, 0.5 + 0.1 * k))  # type: ignore[operator]
    return h.square().sum()


@program
def inner_gradient(under: Under) -> list[Tensor]:
    w = parameter(8, 8)
    x = torch.randn(4, 8, requires_grad=True)
    with under():
        h = x
        for _ in range(5):
            h = torch.tanh(h @ w)
        (slope,) = torch.autograd.grad(h.square().sum(), x, create_graph=True)
        loss = (slope.square().sum() - 1).square() + h.sum()
    return with_grads(loss, w)


@of(8, 8)
def inner_gradient_first_order(w: Tensor) -> Tensor:
    x = torch.randn(4, 8)
    fast = w
    for _ in range(3):
        inner = torch.tanh(x @ fast).square().sum()
        (grad,) = torch.autograd.grad(inner, fast)
        fast = fast - 0.1 * grad
    return torch.sin(x @ fast).sum()


@of(8, 8)
def inner_gradient_second_order(w: Tensor) -> Tensor:
    fast, x = w, torch.randn(4, 8)
    for _ in range(3):
        inner = torch.tanh(x @ fast).square().mean()
        (grad,) = torch.autograd.grad(inner, fast, create_graph=True)
        fast = fast - 0.1 * grad
    return torch.sin(x @ fast).sum()


@program
def double_backward(under: Under) -> list[Tensor]:
    w = parameter(6, 6)
    x = torch.randn(3, 6)
    with under():
        h = x
        for _ in range(6):
            h = torch.tanh(h @ w).square() + h
        loss = h.sin().sum()
    (first,) = torch.autograd.grad(loss, w, create_graph=True)
    first.square().sum().backward()
    return [loss.detach(), first.detach(), w.grad]  # type: ignore[list-item]


@program
def retained_graph(under: Under) -> list[Tensor]:
    w = parameter(6, 6)
    with under():
        h = torch.randn(3, 6)
        for _ in range(9):
            h = torch.tanh(h @ w)
        loss = h.square().sum()
    loss.backward(retain_graph=True)
    first = w.grad.clone()  # type: ignore[union-attr]
    loss.backward(retain_graph=True)
    loss.backward()
    return [first, w.grad]  # type: ignore[list-item]


@program
def two_live_graphs(under: Under) -> list[Tensor]:
    w = parameter(6, 6)
    losses = []
    for k in range(2):
        with under():
            h = torch.randn(3, 6) + k
            for _ in range(7):
                h = torch.tanh(h @ w)
            losses.append(h.square().sum())
    losses[0].backward()
    losses[1].backward()
    return [w.grad]  # type: ignore[list-item]


@program
def graph_over_two_runs(under: Under) -> list[Tensor]:
    w = parameter(6, 6)
    with under():
        h = torch.randn(3, 6)
        for _ in range(7):
            h = torch.tanh(h @ w)
    between = h * 2
    with under():
        for _ in range(7):
            between = torch.sin(between @ w)
        loss = between.square().sum()
    return with_grads(loss, w)


@program
def partial_backward(under: Under) -> list[Tensor]:
    v, w = parameter(6, 6), parameter(6, 6)
    with under():
        h = torch.randn(3, 6)
        for _ in range(5):
            h = torch.tanh(h @ v)
        middle = h
        for _ in range(5):
            h = torch.tanh(h @ w)
        left, right = middle.sum(), h.square().sum()
    (a,) = torch.autograd.grad(right, middle, retain_graph=True)
    (b,) = torch.autograd.grad(left, v, retain_graph=True)
    (c, d) = torch.autograd.grad(right, (v, w))
    return [a, b, c, d]


@program
def hooks_on_tensors(under: Under) -> list[Tensor]:
    w = parameter(6, 6)
    seen: list[Tensor] = []
    with under():
        h = torch.randn(3, 6)
        for k in range(6):
            h = torch.tanh(h @ w)
            if k % 2:
                h.register_hook(lambda g: seen.append(g.clone()) or 0.5 * g)
        h.retain_grad()
        loss = h.square().sum()
    loss.backward()
    return [w.grad, h.grad, *seen]  # type: ignore[list-item]


@program
def backward_inside(under: Under) -> list[Tensor]:
    w = parameter(6, 6)
    with under():
        for k in range(3):
            h = torch.randn(3, 6) + k
            for _ in range(5):
                h = torch.tanh(h @ w)
            F.dropout(h, 0.4).square().sum().backward()
    return [w.grad]  # type: ignore[list-item]

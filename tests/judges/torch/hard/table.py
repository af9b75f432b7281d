"""What hard programs are: a table by name, and what they return."""

import functools
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

Under = Callable[[], AbstractContextManager[Any]]
Program = Callable[[Under], list[Tensor]]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    """A program that seeds itself."""

    @functools.wraps(function)
    def alone(under: Under) -> list[Tensor]:
        torch.manual_seed(0)
        random.seed(0)
        return function(under)

    PROGRAMS[function.__name__] = alone
    return alone


def of(*shape: int) -> Callable[[Callable[[Tensor], Tensor]], Program]:
    """A program whose whole body is under: the loss of one parameter of this shape."""

    def register(loss_of: Callable[[Tensor], Tensor]) -> Program:
        @functools.wraps(loss_of)
        def whole(under: Under) -> list[Tensor]:
            w = parameter(*shape)
            with under():
                loss = loss_of(w)
            return with_grads(loss, w)

        return program(whole)

    return register


def results(*models: nn.Module, extra: tuple[Tensor, ...] = ()) -> list[Tensor]:
    found: list[Tensor] = []
    for model in models:
        found += [p.grad for p in model.parameters() if p.grad is not None]
        found += list(model.buffers())
    return [t.detach().clone() for t in (*found, *extra)]


def parameter(*shape: int, scale: float = 0.3) -> Tensor:
    return (scale * torch.randn(*shape)).requires_grad_()


def with_grads(loss: Tensor, *leaves: Tensor) -> list[Tensor]:
    loss.backward()
    return [loss.detach(), *(leaf.grad for leaf in leaves)]  # type: ignore[list-item]


def trained(loss: Tensor, *models: nn.Module) -> list[Tensor]:
    loss.backward()
    return results(*models, extra=(loss,))


def squared(under: Under, model: nn.Module, x: Tensor) -> list[Tensor]:
    with under():
        loss = model(x).square().sum()
    return trained(loss, model)

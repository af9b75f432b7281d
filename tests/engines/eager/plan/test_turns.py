"""Plans of programs that take turns: forwards and backwards in any order."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from retape.torch import recompute
from tests.engines.eager.plan.test_learned import (
    MEMORY,
    net,
)
from tests.judges.torch.allocator import peak_bytes

STASH: list[Tensor] = []
AMPLE = 1_300_000


class Stash(torch.autograd.Function):
    """Its backward holds on to what was recomputed for it, which no plan foresees."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.tanh()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        STASH.append(y)
        return grads[0] * (1 - y * y)


class Stashing(nn.Module):
    def __init__(self, depth: int, stashes: bool = True) -> None:
        super().__init__()
        self.chain, self.stashes = net(depth), stashes

    def forward(self, x: Tensor) -> Tensor:
        for k, layer in enumerate(self.chain):
            x = layer(x)
            if self.stashes and len(self.chain) - 12 < k < len(self.chain) - 6:
                x = Stash.apply(x)
        return x


def in_turn(order: str, models: dict[str, nn.Module], under: Callable[[], Any]) -> None:
    """An upper-case letter is a forward of a model, a lower-case one its backward.

    Two forwards of a model are reversed in the order in which they ran.
    """
    losses: dict[str, list[Tensor]] = {name: [] for name in models}
    torch.manual_seed(1)
    for letter in order:
        if letter.isupper():
            with under():
                loss = models[letter](torch.ones(256, 48)).square().mean()
            losses[letter].append(loss)
        else:
            losses[letter.upper()].pop(0).backward()
    STASH.clear()


def recording(memory: int, made: list[Any]) -> Callable[[], Any]:
    """Makes recomputations, and notes them."""
    return lambda: made.append(recompute(memory=memory)) or made[-1]


@pytest.mark.slow("AAaa", "AaBb", "ABba", "AABaab")
@pytest.mark.parametrize("order", ["ABab", "AAaa", "AaBb", "ABba", "AABaab"])
def test_any_order_is_exact_and_learns_from_what_its_backward_finds(order: str) -> None:
    models: dict[str, nn.Module] = {"A": Stashing(24), "B": Stashing(30)}
    parameters = [p for model in models.values() for p in model.parameters()]

    def outcome(under: Callable[[], Any]) -> list[Tensor]:
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        in_turn(order, models, under)
        found = [p.grad for p in parameters if p.grad is not None]
        return [*found, torch.get_rng_state()]

    plain, states = outcome(contextlib.nullcontext), list[list[str]]()
    again = list[int]()
    for _ in range(6):
        made: list[Any] = []
        assert all(map(torch.equal, outcome(recording(AMPLE, made)), plain))
        states.append([each.report.plan.state for each in made])
        again.append(sum(each.report.recomputed for each in made))
    # What the stash holds was not foreseen, and was learned: plans have room for it, or
    # are dearer than what the backward finds by itself, and followed no more.
    assert "left" in {each for turn in states for each in turn}
    assert "left" not in states[-1] and again[-1] <= min(again)


@pytest.mark.slow("AAaa")
@pytest.mark.parametrize("order", ["ABba", "AAaa"])
def test_the_budget_of_each_run_holds_while_another_is_there(order: str) -> None:
    models: dict[str, nn.Module] = {"A": Stashing(24, False), "B": Stashing(30, False)}
    for model in models.values():
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
    made = list[Any]()
    for _ in range(3):
        made.clear()
        peak = peak_bytes(lambda: in_turn(order, models, recording(MEMORY, made)))
        assert peak <= 2 * MEMORY
    assert {each.report.plan.state for each in made} == {"followed"}


def twice(chain: nn.Module, under: Any) -> list[Tensor]:
    """One model twice in one block."""
    with under:
        loss = chain(torch.ones(256, 48)).square().mean()
        loss = loss + chain(torch.zeros(256, 48)).square().mean()
    return list(torch.autograd.grad(loss, list(chain.parameters())))


def accumulated(chain: nn.Module, under: Any) -> list[Tensor]:
    chain.zero_grad()
    for k in range(3):
        with under:
            loss = chain(torch.full((256, 48), float(k))).square().mean() / 3
        loss.backward()
    return [p.grad for p in chain.parameters() if p.grad is not None]


def gradient_inside(chain: nn.Module, under: Any) -> list[Tensor]:
    x = torch.ones(256, 48, requires_grad=True)
    with under:
        h = chain(x)
        (slope,) = torch.autograd.grad(h.sum(), x, retain_graph=True)
        loss = (h * slope).square().mean()
    return list(torch.autograd.grad(loss, list(chain.parameters())))


@pytest.mark.slow("accumulated")
@pytest.mark.parametrize("step", [twice, accumulated, gradient_inside])
def test_each_run_gives_the_same_by_rules_and_by_a_plan(step: Any) -> None:
    chain, reports, found = net(16 if step is twice else 24), list[Any](), list[Any]()
    for number in range(5):
        torch.manual_seed(1)
        under: Any = recompute(memory=MEMORY) if number else contextlib.nullcontext()
        found.append([*step(chain, under), torch.get_rng_state()])
        reports += [under.report] if number else []
    assert all(all(map(torch.equal, each, found[0])) for each in found)
    # No plan has a backward inside of it.
    assert (reports[-1].plan.state == "followed") == (step is not gradient_inside)


@pytest.mark.slow("frozen1")
@pytest.mark.parametrize("frozen", [slice(0, 12), slice(1, None, 2)])
def test_a_model_that_is_unfrozen_is_another_program(frozen: slice) -> None:
    """Vectors alone, too: what is saved is the same whether a bias has a gradient."""
    chain = net()
    parameters = list(chain.parameters())

    def steps(under: Callable[[], Any]) -> list[Tensor]:
        torch.manual_seed(1)
        found = []
        for step in range(10):
            for parameter in parameters[frozen]:
                parameter.requires_grad_(step in (4, 5, 6, 7))
            chain.zero_grad()
            with under():
                loss = chain(torch.ones(256, 48)).square().mean()
            loss.backward()
            found += [p.grad for p in parameters if p.grad is not None]
        return found

    made: list[Any] = []
    plain, found = steps(contextlib.nullcontext), steps(recording(MEMORY, made))
    assert len(found) == len(plain) and all(map(torch.equal, found, plain))
    states = [each.report.plan.state for each in made]
    assert states[0] == "none" and states[4] != "followed"
    assert states[2] == states[6] == states[-1] == "followed"

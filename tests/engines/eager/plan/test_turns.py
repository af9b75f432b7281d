"""Plans of programs that take turns: forwards and backwards in any order."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import retape.torch
from retape.engines.eager.api import _checkpoint_sequential as _sequence
from retape.engines.eager.plan._fit import Fit
from retape.torch import recompute
from tests.engines.eager.api.test_checkpoint_sequential import uneven
from tests.engines.eager.plan.test_learned import (
    MEMORY,
    assert_each_run_gives_the_same,
    in_use,
    net,
    planned,
)
from tests.engines.eager.support.allocator import peak_bytes

STASH: list[Tensor] = []
AMPLE = 1_100_000
pytestmark = pytest.mark.usefixtures("tensors_alone")


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


ORDERS = ["AaBb", "ABab", "ABba", "AAaa", "AABaab", "ABAaba"]


@pytest.mark.parametrize("order", ORDERS)
def test_any_order_is_exact_and_learns_from_what_its_backward_finds(order: str) -> None:
    models = {"A": Stashing(24), "B": Stashing(30)}
    parameters = [p for model in models.values() for p in model.parameters()]

    def outcome(under: Callable[[], Any]) -> list[Tensor]:
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        in_turn(order, models, under)
        found = [p.grad for p in parameters if p.grad is not None]
        return [*found, torch.get_rng_state()]

    plain = outcome(contextlib.nullcontext)
    for _ in range(6):
        assert all(map(torch.equal, outcome(lambda: recompute(memory=AMPLE)), plain))
    programs = planned(AMPLE)
    # What the stash holds was learned, and nothing is learned since.
    assert len(programs) == len(set(order.lower()))
    assert any(each.fit.short > 0 for each in programs)
    before = [each.failures for each in programs]
    outcome(lambda: recompute(memory=AMPLE))
    assert [each.failures for each in planned(AMPLE)] == before


def test_runs_of_one_plan_that_leave_it_together_are_one_lesson() -> None:
    models: dict[str, nn.Module] = {"A": Stashing(24)}
    for _ in range(3):
        in_turn("AAAaaa", models, lambda: recompute(memory=AMPLE))
    in_turn("A", models, lambda: recompute(memory=AMPLE))
    (program,) = planned(AMPLE)
    # One run left the first plan, three at once each later one.
    assert program.failures <= 3


def test_a_program_that_foresees_all_learns_nothing() -> None:
    models: dict[str, nn.Module] = {"A": Stashing(24, False), "B": Stashing(30, False)}
    for _ in range(5):
        in_turn("ABab", models, lambda: recompute(memory=MEMORY))
    assert [each.fit for each in planned()] == [Fit(), Fit()] and in_use()


def test_the_budget_of_each_run_holds_while_another_is_there() -> None:
    models: dict[str, nn.Module] = {"A": Stashing(24, False), "B": Stashing(30, False)}
    for model in models.values():
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
    for order in ("ABab", "ABba", "AAaa"):
        for _ in range(4):
            peak = peak_bytes(
                lambda order=order: in_turn(
                    order, models, lambda: recompute(memory=MEMORY)
                )
            )
            assert peak <= 2 * MEMORY


def test_one_model_twice_in_one_block() -> None:
    chain = net(16)

    def twice(under: Any) -> list[Tensor]:
        torch.manual_seed(1)
        with under:
            loss = chain(torch.ones(256, 48)).square().mean()
            loss = loss + chain(torch.zeros(256, 48)).square().mean()
        grads = torch.autograd.grad(loss, list(chain.parameters()))
        return [loss, *grads, torch.get_rng_state()]

    assert_each_run_gives_the_same(twice)
    assert in_use()


def test_gradients_are_accumulated_over_blocks() -> None:
    chain = net()

    def accumulated(under: Any) -> list[Tensor]:
        torch.manual_seed(1)
        chain.zero_grad()
        for k in range(3):
            with under:
                loss = chain(torch.full((256, 48), float(k))).square().mean() / 3
            loss.backward()
        return [p.grad for p in chain.parameters() if p.grad is not None]

    assert_each_run_gives_the_same(accumulated)
    assert in_use()


@pytest.mark.parametrize("frozen", [slice(0, 12), slice(1, None, 2)])
def test_a_model_that_is_unfrozen_is_another_program(frozen: slice) -> None:
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

    plain = steps(contextlib.nullcontext)
    found = steps(lambda: recompute(memory=MEMORY))
    assert len(found) == len(plain) and all(map(torch.equal, found, plain))
    marks = {each.mark for each in planned()}
    assert len(marks) == 2 and in_use()


def test_frozen_vectors_alone_make_another_mark() -> None:
    """What autograd saves is the same whether a bias gets a gradient or not."""
    chain = net()

    def step() -> None:
        with recompute(memory=MEMORY):
            loss = chain(torch.ones(256, 48)).square().mean()
        loss.backward()

    for flag in (True, False):
        for layer in chain:
            if isinstance(layer, nn.Linear):
                layer.bias.requires_grad_(flag)
        for _ in range(3):
            step()
    assert len(planned()) == 2


def test_a_chain_learns_from_what_its_backward_finds() -> None:
    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = uneven(1)

        def forward(self, x: Tensor) -> Tensor:
            return Stash.apply(self.layer(x))

    torch.manual_seed(0)
    chain = nn.Sequential(*(Part() for _ in range(12)))
    x = torch.randn(512, 8, requires_grad=True)
    memory = 250_000
    for _ in range(6):
        retape.torch.checkpoint_sequential(
            chain, input=x, memory=memory
        ).sum().backward()
        STASH.clear()
    (program,) = _sequence._programs.values()
    assert program.fit.short > 0

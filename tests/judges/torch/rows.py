"""The programs that are judged, in one form, and what is found of each.

A program is run whole, with its backward, and what it returns must not differ by a bit
from what it returns without a budget.
"""

import contextlib
import random
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from retape import BudgetError
from retape.torch import recompute
from tests.judges.torch.allocator import Peak
from tests.judges.torch.hard import PROGRAMS
from tests.judges.torch.models import NOT_ESTIMATED
from tests.judges.torch.random_programs import MODELS

STEPS = 2  # of training


class Trained:
    """Steps of training of a model; gradients are there before the first one."""

    def __init__(self, name: str) -> None:
        torch.manual_seed(0)
        self.net, self.loss = MODELS[name]()
        self._start = {k: v.clone() for k, v in self.net.state_dict().items()}
        self.reset()

    def reset(self) -> None:
        self.net.load_state_dict(self._start)
        torch.manual_seed(1)
        with_gradients(list(self.net.parameters()))

    def __call__(self, under: Callable[[], Any]) -> list[Tensor]:
        self.reset()
        optimiser, found = torch.optim.SGD(self.net.parameters(), 1e-4), []
        for _ in range(STEPS):
            optimiser.zero_grad(set_to_none=False)
            with under():
                loss = self.loss()
            loss.backward()
            optimiser.step()
            found.append(loss.detach())
        return [*found, *self.net.state_dict().values()]


def with_gradients(parameters: list[nn.Parameter]) -> None:
    """Budgets leave gradients of leaves out: these are there before."""
    for each in parameters:
        if each.requires_grad:
            each.grad = torch.zeros_like(each)


ROWS = [*PROGRAMS, *MODELS]
# They can be called without a recomputation of their own, and say what they cost.
WITH_A_LOSS = [name for name in ROWS if name not in PROGRAMS]
ESTIMATED = [name for name in WITH_A_LOSS if name not in NOT_ESTIMATED]


@cache
def row(name: str) -> Any:
    if name in PROGRAMS:
        return PROGRAMS[name]
    return Trained(name)


class Outcome(NamedTuple):
    """All that must be the same: tensors, and both states of random numbers."""

    tensors: list[Tensor]
    state: object


class Run(NamedTuple):
    """One run of a program.

    Attributes:
        peak: The most bytes that the allocator held beyond the start of the first
            block.
        reports: Of its recomputations.
    """

    outcome: Outcome
    peak: int
    reports: list[Any]


def frozen(tensors: list[Tensor]) -> Outcome:
    copies = [each.detach().clone() for each in tensors]
    return Outcome([*copies, torch.get_rng_state()], random.getstate())


def assert_same(plain: Outcome, found: Outcome) -> None:
    assert plain.state == found.state
    assert len(plain.tensors) == len(found.tensors)
    for number, (a, b) in enumerate(zip(plain.tensors, found.tensors, strict=True)):
        assert torch.equal(a, b), f"tensor {number} differs"


def ran(name: str, under: Callable[[], Any]) -> list[Tensor]:
    """What a program gives; Python's random numbers begin anew, whatever ran before."""
    random.seed(0)
    return row(name)(under)


@cache
def plain_of(name: str) -> Outcome:
    return frozen(ran(name, contextlib.nullcontext))


def run(name: str, store: Callable[[], Any] = lambda: None, **options: Any) -> Run:
    """A run in recomputations with these options, each with a store of its own."""
    made: list[Any] = []
    with contextlib.ExitStack() as measured:
        peak = Peak()

        def under() -> Any:
            if not made:
                measured.enter_context(peak)
            made.append(recompute(store=store(), **options))
            return made[-1]

        found = ran(name, under)
    return Run(frozen(found), peak.nbytes, [each.report for each in made])


@cache
def least(name: str, **options: Any) -> int:
    """The budget that the error messages lead to."""
    memory = 1
    while True:
        try:
            row(name)(lambda: recompute(memory=memory, **options))  # noqa: B023
            return memory
        except BudgetError as error:
            assert error.least is not None and error.least > memory
            memory = error.least


@cache
def enough(name: str) -> int:
    """A budget in which nothing has to be run again."""
    return max(each.peak_bytes for each in run(name, memory="1GB").reports)


def beside(name: str) -> int:
    """Bytes of what a budget leaves out: gradients of leaves that are made within."""
    if name in WITH_A_LOSS:
        return 0
    return sum(each.nbytes for each in plain_of(name).tensors)

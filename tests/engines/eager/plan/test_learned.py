"""Plans that runs leave for the runs after them."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import retape.torch
from retape.engines.eager.plan import _learned
from retape.engines.eager.plan._fit import Fit
from retape.engines.eager.plan._learned import LearnedProgram, lessons_for
from retape.engines.eager.plan._planned_forward import UnitSchedule
from retape.torch import recompute
from tests.engines.eager.api.test_programs import assert_same, least, outcome
from tests.engines.eager.support.allocator import peak_bytes
from tests.engines.eager.support.programs import PROGRAMS

MEMORY = 900_000


@pytest.fixture
def compiled() -> Iterator[None]:
    retape.torch.accelerate()
    yield
    retape.torch.accelerate(False)


def net(depth: int = 24, width: int = 48) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [
        m
        for _ in range(depth)
        for m in (nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1))
    ]
    return nn.Sequential(*layers)


def gradients(
    model: Callable[[Tensor], Tensor], parameters: list[Tensor], under: Any
) -> list[Tensor]:
    torch.manual_seed(1)
    with under:
        loss = model(torch.ones(256, 48)).square().mean()
    return [loss, *torch.autograd.grad(loss, parameters), torch.get_rng_state()]


def again(
    chain: nn.Module,
    memory: int = MEMORY,
    model: Callable[[Tensor], Tensor] | None = None,
) -> int:
    """Operators that one exact run within a budget runs again."""
    under, parameters = recompute(memory=memory), list(chain.parameters())
    found = gradients(model or chain, parameters, under)
    plain = gradients(model or chain, parameters, contextlib.nullcontext())
    assert all(map(torch.equal, found, plain))
    return under.report.recomputed


def assert_each_run_gives_the_same(run: Callable[[Any], list[Tensor]]) -> None:
    """Four runs in the budget, by rules of thumb and by a plan, and a plain one."""
    plain = run(contextlib.nullcontext())
    for _ in range(4):
        found = run(recompute(memory=MEMORY))
        assert all(map(torch.equal, found, plain))


def planned(memory: int = MEMORY) -> list[LearnedProgram]:
    """The programs that a run which begins now may follow."""
    lessons_for(memory).plan()
    return [each for each in lessons_for(memory).programs.values() if each.descents]


@cache
def least_of(name: str) -> int:
    return least(PROGRAMS[name])


def in_use(memory: int = MEMORY) -> bool:
    """Whether the latest run followed a plan to its end."""
    found = lessons_for(memory).followed
    return found is not None and not found.broken


def test_the_second_run_follows_the_optimum_for_the_first() -> None:
    chain = net()
    work = [again(chain) for _ in range(4)]
    assert work[0] > work[1] == work[2] == work[3] > 0
    assert len(planned()) == 1 and in_use()


def learned_descents() -> str:
    chain = net()
    for _ in range(3):
        again(chain)
    return str(planned()[0].descents)


PRINT_IT = """
from tests.engines.eager.plan.test_learned import learned_descents
print(learned_descents())
"""


def test_a_program_has_the_same_plan_in_each_process() -> None:
    here = learned_descents()
    _learned.forget_lessons()
    assert learned_descents() == here
    folders = [
        str(Path(__file__).parents[4]),
        str(Path(retape.torch.__file__).parents[1]),
    ]
    environment = {
        **os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(folders),
    }  # fmt: skip
    there = subprocess.run(
        [sys.executable, "-c", PRINT_IT],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert there.stdout.strip() == here


@pytest.mark.usefixtures("tensors_alone")
def test_compiled_code_finds_the_same_plan(compiled: None) -> None:
    with_it = learned_descents()
    retape.torch.accelerate(False)
    _learned.forget_lessons()
    assert learned_descents() == with_it


def test_no_clock_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> float:
        raise AssertionError("a clock was looked at")

    chain = net()
    with monkeypatch.context() as patch:
        for name in (
            "time",
            "perf_counter",
            "process_time",
            "monotonic",
            "thread_time",
        ):
            patch.setattr(time, name, refuse)
            patch.setattr(time, f"{name}_ns", refuse)
        work = [again(chain) for _ in range(3)]
    assert work[2] < work[0]


@pytest.mark.usefixtures("tensors_alone")
@pytest.mark.parametrize("memory", [760_000, 900_000, 1_300_000])
def test_the_budget_holds_when_a_plan_is_followed(memory: int) -> None:
    chain, x = net(), torch.ones(256, 48)
    for parameter in chain.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def job() -> None:
        with recompute(memory=memory):
            loss = chain(x).square().mean()
        loss.backward()

    assert max(peak_bytes(job) for _ in range(4)) <= memory
    assert in_use(memory)


def test_what_fits_is_not_planned() -> None:
    chain = net(4)
    assert [again(chain, 10**9) for _ in range(3)] == [0, 0, 0]
    assert not lessons_for(10**9).programs


def test_what_fits_is_not_planned_beside_a_plan_either() -> None:
    chain = net()
    followed = [again(chain) for _ in range(3)][-1]
    first, *rest = [again(chain, model=lambda x: chain(x[:4])) for _ in range(3)]
    # Until its first unit is over it might have been the other program.
    assert first <= 3 and rest == [0, 0]
    assert len(lessons_for(MEMORY).programs) <= 2
    assert again(chain) == followed and in_use()


def test_programs_in_one_budget_are_told_apart() -> None:
    chains = [net(), net(30), net(20)]
    first = [[again(chain) for _ in range(2)][0] for chain in chains]
    assert len(planned()) == 3
    # They begin alike: which of them comes is known by which came before.
    for _ in range(2):
        for chain in chains:
            again(chain)
    for chain, before in zip(chains, first, strict=True):
        assert again(chain) < before and in_use()


@pytest.mark.parametrize("reversed_before", [True, False])
def test_a_plan_is_looked_for_when_the_run_is_reversed(
    monkeypatch: pytest.MonkeyPatch, reversed_before: bool
) -> None:
    chain, living, find = net(), list[int](), _learned.measure_in_parts

    def look(run: Any, counts: Any, end: Any = None) -> Any:
        living.append(run.living)
        return find(run, counts, end)

    monkeypatch.setattr(_learned, "measure_in_parts", look)
    losses: list[Tensor] = []
    for _ in range(4):
        with recompute(memory=MEMORY):
            losses.append(chain(torch.ones(256, 48)).square().mean())
        if reversed_before:
            losses.pop().backward()
    # Else the second graph is read while it is there, before any backward.
    assert len(living) == 1 and bool(living[0]) != reversed_before and in_use()


def test_programs_that_are_forgotten_are_not_planned_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chains, measure = [net(), net(30), net(20)], _learned.measure_in_parts
    found: list[int] = []

    def count(run: Any, counts: Any, end: Any = None) -> Any:
        found.append(len(run.trace.steps))
        return measure(run, counts, end)

    monkeypatch.setattr(_learned, "measure_in_parts", count)
    monkeypatch.setattr(_learned, "_MOST_PROGRAMS", 2)
    monkeypatch.setattr(_learned, "_RUNS_PER_SEARCH", 10)
    for _ in range(2):
        for chain in chains:
            assert again(chain) > 0 and again(chain) > 0
    # Two at once, and one more for ten runs: the twelfth run's is the third.
    lessons_for(MEMORY).plan()
    assert len(found) == 3 and len(set(found)) == 3


@pytest.mark.parametrize("accelerated", [False, True])
def test_a_program_that_does_something_else_leaves_its_plan(accelerated: bool) -> None:
    chain = net()
    retape.torch.accelerate(accelerated)
    try:
        followed = [again(chain) for _ in range(3)][-1]
        longer = nn.Sequential(*chain, *net(4))
        other = nn.Sequential(*list(chain)[:30], nn.Linear(48, 96), nn.Linear(96, 48))
        # As many operators on as many bytes, in another order.
        turned = nn.Sequential(*list(chain)[:39], chain[40], chain[39], *chain[41:])
        for changed in (longer, other, turned, chain[:40]):
            again(changed)
            assert not in_use()
        # The first unit is that of all; what came after it the last time is expected.
        for _ in range(2):
            again(chain)
        assert again(chain) == followed
    finally:
        retape.torch.accelerate(False)


def test_an_exception_in_between_changes_nothing() -> None:
    chain = net()
    followed = [again(chain) for _ in range(3)][-1]

    def fails(x: Tensor) -> Tensor:
        chain[:40](x)
        raise KeyError("in between")

    for _ in range(2):
        with pytest.raises(KeyError, match="in between"):
            again(chain, model=fails)
    assert again(chain) == followed and in_use()


class Hoarder:
    """Holds what each of the last layers reads, as long as it runs or longer."""

    def __init__(self, chain: nn.Sequential, since: int) -> None:
        self.chain, self.since = chain, since
        self.held: list[Tensor] = []

    def __call__(self, x: Tensor) -> Tensor:
        held: list[Tensor] = []
        for k, layer in enumerate(self.chain):
            if k >= self.since:
                held.append(x)
            x = layer(x)
        self.held = held
        return x

    def and_lets_go(self, x: Tensor) -> Tensor:
        x = self(x)
        self.held = []
        return x


@pytest.mark.usefixtures("tensors_alone")
@pytest.mark.parametrize("lets_go", [False, True])
def test_a_program_that_holds_more_is_planned_with_less_room(lets_go: bool) -> None:
    chain = net()
    hoarder = Hoarder(chain, since=52)
    model = hoarder.and_lets_go if lets_go else hoarder
    parameters = list(chain.parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    memory = 1_500_000

    def job() -> None:
        torch.manual_seed(1)
        with recompute(memory=memory):
            loss = model(torch.ones(256, 48)).sum()
        loss.backward()
        hoarder.held = []

    assert max(peak_bytes(job) for _ in range(6)) <= memory
    (program,) = planned(memory)
    assert bool(program.fit.overhang) is lets_go and in_use(memory)
    again(chain, memory, model)


def test_what_is_held_only_from_the_third_run_on_breaks_no_budget() -> None:
    chain, memory = net(), 1_500_000
    hoarder = Hoarder(chain, since=100)
    for parameter in chain.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def job() -> None:
        torch.manual_seed(1)
        with recompute(memory=memory):
            loss = hoarder(torch.ones(256, 48)).sum()
        loss.backward()
        hoarder.held = []

    peaks = []
    for since in (100, 100, 100, 58, 58, 58):
        hoarder.since = since
        peaks.append(peak_bytes(job))
    assert max(peaks) <= memory
    (program,) = lessons_for(memory).programs.values()
    assert program.fit != Fit()


def test_what_is_held_to_the_end_counts_everywhere() -> None:
    fit = Fit()
    fit.learn(UnitSchedule((), 0, excess=10))
    fit.learn(UnitSchedule((), 0, excess=1))
    assert (fit.short, fit.overhang) == (20, 0)
    fit.learn(UnitSchedule((), 0, excess=1, overhang=100))
    assert (fit.short, fit.overhang) == (20, 100)
    fit.learn(UnitSchedule((), 0, excess=1, overhang=90))
    assert (fit.short, fit.overhang) == (20, 125)


def test_a_gradient_inside_of_the_program_leaves_the_plan() -> None:
    chain = net()

    def inside(under: Any) -> list[Tensor]:
        torch.manual_seed(1)
        x = torch.ones(256, 48, requires_grad=True)
        with under:
            h = chain(x)
            (slope,) = torch.autograd.grad(h.sum(), x, retain_graph=True)
            loss = (h * slope).square().mean()
        return list(torch.autograd.grad(loss, list(chain.parameters())))

    assert_each_run_gives_the_same(inside)


def test_a_kept_graph_is_reversed_twice_within_the_budget() -> None:
    chain = net()
    parameters = list(chain.parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    plain = gradients(chain, parameters, contextlib.nullcontext())[1:-1]

    def job() -> None:
        torch.manual_seed(1)
        for parameter in parameters:
            parameter.grad.zero_()  # type: ignore[union-attr]
        with recompute(memory=MEMORY):
            loss = chain(torch.ones(256, 48)).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()

    for _ in range(3):
        assert peak_bytes(job) <= MEMORY
        for parameter, once in zip(parameters, plain, strict=True):
            assert torch.equal(parameter.grad, 2 * once)  # type: ignore[arg-type]
    assert in_use()


@pytest.mark.parametrize("factor", [1.05, 1.3])
def test_hard_programs_are_exact_when_they_follow_a_plan(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every plan there is, also those that the rules of thumb would beat."""
    find_plan = LearnedProgram.find_plan

    def find_any(self: LearnedProgram, largest: int, below: float) -> None:
        find_plan(self, largest)

    monkeypatch.setattr(LearnedProgram, "find_plan", find_any)
    followed = []
    for name, program in PROGRAMS.items():
        plain = outcome(program, contextlib.nullcontext())
        memory = int(factor * least_of(name))
        for _ in range(3):
            assert_same(plain, outcome(program, recompute(memory=memory)))
        followed += [name] if in_use(memory) else []
    assert len(followed) >= 10


def test_a_mask_of_a_dropout_is_the_same_in_each_run() -> None:
    chain = net()

    def masks(under: Any) -> list[Tensor]:
        torch.manual_seed(3)
        x = torch.ones(256, 48, requires_grad=True)
        with under:
            loss = chain(x).sum()
        return [*torch.autograd.grad(loss, x), torch.rand(4)]

    assert_each_run_gives_the_same(masks)
    assert in_use()

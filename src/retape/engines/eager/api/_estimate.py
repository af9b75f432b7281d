"""`estimate`: what a budget costs, told before anything is computed.

The program is run once on tensors that have shapes and no values. Its record says all
that plans are made from: what each operator makes, what autograd saves, what costs how
much. So the least budget, and what a plan recomputes in a larger one, are those that
`recompute` will find, unless the program holds more in local variables than a record
shows: a first run shows that, and later ones have a plan with less room.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from retape._bytes import format_bytes
from retape._errors import BudgetError, PlanError
from retape._warn import warn
from retape.engines.eager._limits import (
    ample_budget,
    automatic_budget,
    check_callable,
    read_bytes,
)
from retape.engines.eager.analysis._least_memory import least_memory
from retape.engines.eager.analysis._measured import measure, whole_mark
from retape.engines.eager.api._record_shapes import record_shapes
from retape.engines.eager.plan._book import UNITS, choose, expect
from retape.engines.eager.plan._expected_plan import ExpectedPlan
from retape.engines.eager.plan._program import FEWEST_ENTRIES, Program
from retape.engines.eager.trace._run import Run

_POINTS = 10
# A quarter of the forward again is about a twelfth of a step of training.
_SENSIBLE = 0.25
_AMPLE = 2**62


@dataclass(frozen=True, slots=True)
class Point:
    """The cost of one budget.

    Attributes:
        memory: The budget, in bytes.
        recomputed: How much of the forward is run again, as a share of its cost.
    """

    memory: int
    recomputed: float


@dataclass(frozen=True)
class Estimate:
    """The costs of budgets for one program, estimated without running it.

    Attributes:
        steps: Operators of the forward.
        least: The least budget, in bytes.
        enough: Bytes in which nothing is run again.
        curve: Budgets from the least for which a plan is known up to `enough`. More
            memory never costs more.
        sensible: The smallest budget of the curve that runs a quarter of the forward
            again, or less.
        known: What plans are made from, for `recompute`; `None` if there is nothing to
            reverse.
    """

    steps: int
    least: int
    enough: int
    curve: tuple[Point, ...]
    sensible: int
    known: Program | None = field(default=None, repr=False, compare=False)

    def recomputed(self, memory: int | float | str) -> float:
        """The share of the forward that a plan in a budget runs again.

        Args:
            memory: Bytes, or text such as `"2GB"`.

        Returns:
            The share by cost; infinite where no plan is known but the budget can be
            kept, by rules of thumb.

        Raises:
            PlanError: If it is not an amount.
            BudgetError: If the program cannot be reversed in so few bytes.
        """
        nbytes = self.checked(memory)
        found = [each.recomputed for each in self.curve if each.memory <= nbytes]
        if self.known is not None:
            found.append(_share(self.known, nbytes))
        return min(found, default=inf)

    def checked(self, memory: Any) -> int:
        """A budget in bytes, if the program can be reversed in it.

        Raises:
            PlanError: If it is not an amount.
            BudgetError: If it is too small; it names the least.
        """
        nbytes = read_bytes(memory)
        if nbytes < self.least:
            raise BudgetError(
                f"`memory={nbytes}` bytes are too few for this program of "
                f"`{self.steps}` operators; it needs at least `{self.least}`. Give "
                "that much.",
                least=self.least,
            )
        return nbytes

    def advise(self, memory: int | float | str) -> str:
        """Does it pay, with so much memory for what a forward leaves behind?

        Args:
            memory: Bytes, or text such as `"2GB"`: what parameters, gradients and the
                optimiser's state leave.

        Returns:
            A sentence or two: to do nothing, what to call and what it costs, or what
            else to do where no budget helps.

        Raises:
            PlanError: If it is not an amount.

        Examples:
            >>> import torch, retape.torch
            >>> layers = [torch.nn.Linear(64, 64) for _ in range(16)]
            >>> found = estimate(torch.nn.Sequential(*layers), torch.ones(32, 64))
            >>> found.advise("1GB").split(":")[0]
            'It fits as it is'
        """
        nbytes = read_bytes(memory)
        given, whole = format_bytes(nbytes), format_bytes(self.enough)
        if nbytes >= self.enough:
            return (
                f"It fits as it is: all that the backward needs takes {whole} of "
                f"{given}. Do nothing; a plan has nothing to save."
            )
        if nbytes < self.least:
            return (
                f"No budget helps: {given} are less than {format_bytes(self.least)}, "
                "the least that the program can be reversed in. Make the batch "
                "smaller, or spread the model."
            )
        share = self.recomputed(nbytes)
        call = f"`with retape.torch.recompute(memory={memory!r}):`"
        if share == inf:
            good = format_bytes(self.sensible)
            return (
                f"{call} keeps to it, at a cost that is not known beforehand. "
                f"{good} run no more than a quarter of the forward again."
            )
        return (
            f"{call} keeps to it instead of {whole}, and runs {share:.0%} of the "
            f"forward again: {share / 3:.0%} of a step, if a backward takes two "
            "forwards."
        )

    def __str__(self) -> str:
        rows = [f"{p.memory:>16,} bytes  {p.recomputed:>7.1%}" for p in self.curve]
        return "\n".join(
            [
                f"{self.steps} operators; least {self.least:,} bytes, "
                f"sensible {self.sensible:,}, all of it {self.enough:,}",
                "          budget        run again",
                *rows,
            ]
        )


def estimate(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Estimate:
    """Tell what `recompute(memory=...)` costs for a program, without computing it.

    The function is called once, on tensors that have shapes and types and no values:
    it takes next to no memory and no accelerator, and changes no buffer. A module that
    takes all of a machine can be estimated on another one, built under
    `torch.device("meta")`. The memory that a GPU's kernels work in shows when they run:
    it is told of those that this process has run under `recompute`.

    Args:
        function: A module or a function: the forward, at best with its loss.
        *args: Its arguments. Tensors in them are looked at for their shapes only.
        **kwargs: Its keyword arguments.

    Returns:
        The least budget, a sensible one, and a curve of memory against recomputation.

    Raises:
        UnsupportedError: If the program reads values to decide what to do
            (`tensor.item()`), or has an operator that says nothing of its shapes.
        PlanError: If it is called inside of a recomputation, or without a function.

    Examples:
        >>> import torch, retape.torch
        >>> layers = [torch.nn.Linear(64, 64) for _ in range(16)]
        >>> found = estimate(torch.nn.Sequential(*layers), torch.ones(32, 64))
        >>> found.steps, found.least < found.sensible <= found.enough
        (16, True)
        >>> found.recomputed(found.enough)
        0.0
    """
    check_callable(function, "Pass the module or function first, then its arguments.")
    recorder = record_shapes(function, args, kwargs, 1)
    tight, keeper = recorder.run, recorder.keeper
    tensors = max(keeper.floor, least_memory(tight)) + tight.trace.in_flight.nbytes
    least = ample_budget(tensors, keeper.bare)
    nothing_saved = not tight.living
    tight.let_go()
    recorder = record_shapes(function, args, kwargs, _AMPLE)
    run, keeper = recorder.run, recorder.keeper
    if nothing_saved:
        return Estimate(len(run.trace.steps), 1, 1, (Point(1, 0.0),), 1)
    enough = ample_budget(keeper.enough, keeper.bookkeeping)
    measured = measure(run, UNITS)
    known = Program(whole_mark(run), measured=measured, estimated=enough)
    expect(known)
    points = [Point(m, _share(known, m)) for m in _budgets(least, enough)]
    curve = _monotone(points, enough)
    good = (each.memory for each in curve if each.recomputed <= _SENSIBLE)
    least = min(least, enough)
    sensible = next(good, enough)
    steps = len(run.trace.steps)
    run.let_go()
    return Estimate(steps, least, enough, curve, sensible, known)


def _share(known: Program, memory: int) -> float:
    """The share of the forward that the plan in a budget runs again."""
    assert known.measured is not None
    choice = choose(known, memory, FEWEST_ENTRIES)
    return inf if choice is None else choice.cost / max(1, known.measured.cost)


def _budgets(least: int, enough: int) -> list[int]:
    """Budgets in equal ratios, both ends included."""
    if least >= enough:
        return [enough]
    ratio = (enough / least) ** (1 / (_POINTS - 1))
    return [int(least * ratio**k) for k in range(_POINTS - 1)] + [enough]


def _monotone(points: Sequence[Point], enough: int) -> tuple[Point, ...]:
    """A plan for less memory is one for more: the best so far; without the unknown."""
    found: list[Point] = []
    best = inf
    for point in points:
        nothing = point.memory >= enough
        best = 0.0 if nothing else min(best, point.recomputed)
        if best < inf:
            found.append(Point(point.memory, best))
    return tuple(found)


def estimated_budget(
    found: Estimate, memory: object, others: dict[str, object]
) -> tuple[int, Program | None]:
    """The budget of a run that is to follow an estimate, and the program.

    Without it an estimated program is known by what it does. With it a run that does
    something else is told: the estimate would be without effect in silence.

    Args:
        found: The estimate.
        memory: A budget; the sensible one if it is `None`.
        others: By name, the arguments under which no run has a plan, those of the
            caller's that were given.

    Raises:
        PlanError: If one of the others is there.
        BudgetError: If the program cannot be reversed in so few bytes.
    """
    if others:
        names = " and ".join(f"`{name}`" for name in others)
        raise PlanError(
            f"`plan` is an estimate, and {names} was given, too: only runs of "
            "operators within bytes, without it, have the plan of an estimate. Leave "
            "one of them out."
        )
    if memory is None:
        memory = found.sensible
    nbytes = found.checked(automatic_budget() if memory == "auto" else memory)
    return nbytes, found.known


def tell_if_another(known: Program, run: Run) -> None:
    """Warn if a run that is over has not done what was estimated."""
    plan: ExpectedPlan | None = run.tally.plan
    if plan is not None and not plan.broken and plan.measured is known.measured:
        return
    if run.living and whole_mark(run) != known.mark:
        assert known.measured is not None, "it was estimated"
        warn(
            f"The program that was run (`{len(run.trace.steps)}` operators) is not the "
            f"one that `plan` was estimated for (`{len(known.measured.costs)}`), so "
            "it was kept to the budget by rules. Estimate all that the block runs, its "
            "loss included, on tensors of the same shapes and types and in the same "
            "mode."
        )

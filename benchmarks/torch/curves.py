"""Twenty budgets between the least and plain: held, and does more memory cost less?

    python -m benchmarks.torch.curves [--full] [--fresh] [--estimated] [NAME ...]

For each budget: the peak that the CPU's allocator counted beyond the start, of the
first run and of later ones, which follow what was learned; what was run again, as a
share of the operators and of the forward's cost (multiplications of products, bytes of
the rest), in the first run and in the last; processor time of a later run over that of
the plain one. Then by how much a larger budget ever cost more than a smaller one.

`--full` takes larger models. With `--fresh` each budget is as in a process of its own:
what runs in others have shown is forgotten; with `--estimated` the program is then
estimated, so that its first run has a plan. `--figure STEM` draws it, for light and
dark pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from benchmarks.harness import Table, asked, drawn
from benchmarks.harness import least as seconds
from benchmarks.torch.allocator import peak_bytes, ready_gradients
from benchmarks.torch.programs import MODELS, Program
from torch import Tensor

import retape.torch
from retape import BudgetError
from retape.engines.eager.analysis._operator_cost import step_costs
from retape.engines.eager.plan._book import forget_plans
from retape.engines.eager.replay import _backward

# The third run follows a plan, the fourth one that knows what the third held.
RUNS = 4
COLUMNS = (
    "budget MB", "first MB", "later MB", "first again", "again", "first cost", "cost",
    "time", "held",
)  # fmt: skip


class Point(NamedTuple):
    """One budget: bytes, and shares of operators and costs that are run again.

    Attributes:
        first_peak, first, first_cost: Of the first run, which knows nothing.
        peak: The most of the later runs.
        again, cost: Of the latest run, by a plan.
        job: A run.
    """

    budget: int
    first_peak: int
    peak: int
    first: float
    again: float
    first_cost: float
    cost: float
    job: Callable[[], None]

    @property
    def holds(self) -> bool:
        """Whether the budget was kept."""
        return max(self.first_peak, self.peak) <= self.budget


class Costs:
    """Counts the cost of what is run again, of the latest run."""

    def __init__(self) -> None:
        self.again = self.total = 0
        replay = _backward.Sweep._replay

        def counted(sweep: _backward.Sweep, wanted: set[int]) -> dict[int, Tensor]:
            trace = sweep._run.trace
            if self._trace is not trace:
                self._trace, self._costs = trace, step_costs(trace)
                self.total = sum(self._costs)
            needed = _backward.needed_steps(trace, wanted)
            self.again += sum(self._costs[index] for index in needed)
            return replay(sweep, wanted)

        self._trace: object = None
        self._costs: Sequence[int] = ()
        _backward.Sweep._replay = counted  # type: ignore[method-assign]

    def share(self) -> float:
        """The share since it was asked for the last time."""
        found = self.again / self.total if self.again else 0.0
        self.again, self._trace = 0, None
        return found


def step(loss: Callable[[], Tensor]) -> None:
    """One forward and backward, the same at random."""
    torch.manual_seed(1)
    loss().backward()


def least(program: Program, **options: Any) -> int:
    """The least budget, as the errors tell it."""
    memory = 1
    while True:
        try:
            step(retape.torch.recompute(memory=memory, **options)(program.loss))
            return memory
        except BudgetError as error:
            assert error.least is not None
            memory = error.least


def sweep(
    program: Program,
    count: int = 20,
    runs: int = RUNS,
    share: Callable[[], float] = float,
    forget: Callable[[], object] = lambda: None,
    **options: Any,
) -> Iterator[Point]:
    """Measure budgets in equal steps from the least to what the plain run takes.

    Args:
        program: What is run.
        count: Budgets.
        runs: In each of them.
        share: The cost of what was run again since it was asked; 0 if nobody counts.
        forget: What is done before each budget.
        options: For `recompute`.
    """
    ready_gradients(program.parameters)
    plain = partial(step, program.loss)
    plain()
    most, low = peak_bytes(plain), least(program, **options)
    for k in range(count):
        forget()
        budget = low + max(0, most - low) * k // (count - 1)
        run = retape.torch.recompute(memory=budget, **options)
        job = partial(step, run(program.loss))
        peaks, again, costs = list[int](), list[float](), list[float]()
        share()
        for _ in range(runs):
            peaks.append(peak_bytes(job))
            again.append(run.report.recomputed / run.report.steps)
            costs.append(share())
        first, later = peaks[0], max(peaks[1:], default=0)
        yield Point(budget, first, later, again[0], again[-1], costs[0], costs[-1], job)


def estimated(program: Program) -> None:
    """Forget all but what the shapes of a program say."""
    forget_plans()
    torch.manual_seed(1)
    retape.torch.estimate(program.loss)


def rises(shares: Sequence[float]) -> float:
    """By how much a larger budget costs more than a smaller one, at the worst."""
    best = accumulate(shares, min)
    return max(now - low for now, low in zip(shares, best, strict=True))


def measured(program: Program, title: str, base: float, **how: Any) -> list[Point]:
    """A table of a program's budgets."""
    table, points = Table(*COLUMNS, title=title), list[Point]()
    for point in sweep(program, **how):
        peaks = [n / 1e6 for n in (point.budget, point.first_peak, point.peak)]
        shares = point.first, point.again, point.first_cost, point.cost
        time = seconds(point.job, 2) / base
        table.row(*peaks, *shares, time, "yes" if point.holds else "OVER")
        points.append(point)
    if points:
        for run, costs in (
            ("first", [p.first_cost for p in points]),
            ("later", [p.cost for p in points]),
        ):
            print(f"{run}: more memory cost at most {rises(costs):.3f} more")
    return points


def draw(curves: dict[str, list[Point]], axes: Any) -> None:
    """The share that is run again over budgets; later runs whole, first ones broken."""
    for number, (name, points) in enumerate(curves.items()):
        budgets = [p.budget / points[-1].budget for p in points]
        for line, costs in (
            ("-", [p.cost for p in points]),
            ("--", [p.first_cost for p in points]),
        ):
            look = {"color": f"C{number}", "linestyle": line}
            label = name if line == "-" else None
            axes.plot(budgets, [min(3.0, c) for c in costs], label=label, **look)
    axes.set(xlabel="budget / what plain takes", ylabel="forward run again")


def main() -> None:
    given = asked(
        __doc__, MODELS, full=False, fresh=False, estimated=False, figure="",
        budgets=20, quick={"budgets": 3, "names": ["gpt"]},
    )  # fmt: skip
    torch.set_num_threads(1)
    retape.torch.accelerate()
    costs, curves = Costs(), dict[str, list[Point]]()
    for name in given.names:
        torch.manual_seed(0)
        program = MODELS[name](given.full)
        ready_gradients(program.parameters)
        base = seconds(partial(step, program.loss))
        forget = forget_plans if given.fresh else lambda: None
        if given.estimated:
            forget = partial(estimated, program)
        how = {"count": given.budgets, "share": costs.share, "forget": forget}
        if points := measured(program, name, base, **how):
            curves[name] = points
    if given.figure:
        drawn(given.figure, partial(draw, curves), figsize=(6.4, 4))


if __name__ == "__main__":
    main()

"""Twenty budgets between the least and plain: does each hold, and does more cost less?

    python -m benchmarks.torch.budgets [--small] [--loop] [mlp|gpt|lstm|resnet|llama]

For each budget: the peak that the CPU allocator counted beyond the start, with leaf
gradients allocated before, and operators run again over those recorded, both of the
first run and of later ones, which follow what was learned; processor time of a later
run over that of the plain one. `--small` takes models that are done in a second each.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from benchmarks.harness import Table
from benchmarks.harness import least as seconds
from benchmarks.torch import rivals
from benchmarks.torch.allocator import peak_bytes, ready_gradients
from benchmarks.torch.workloads import SMALL, WORKLOADS, Workload

import retape.torch
from retape._errors import BudgetError

# The third run follows a plan, the fourth one that knows what the third held.
RUNS = 4
COLUMNS = ("budget MB", "first MB", "later MB", "again", "then", "time", "held")


class Row(NamedTuple):
    """One budget: bytes, and operators run again over operators recorded.

    Attributes:
        first_peak, first_again: Of the first run, which knows nothing.
        peak: The most of the later runs.
        again: Of the latest run, by a plan.
    """

    budget: int
    first_peak: int
    first_again: float
    peak: int
    again: float
    job: Callable[[], None]

    @property
    def holds(self) -> bool:
        """Whether the budget was kept."""
        return max(self.first_peak, self.peak) <= self.budget


def least(work: Workload, **options: Any) -> int:
    """The least budget, as the errors tell it."""
    memory = 1
    while True:
        try:
            rivals.step(work, lambda w, m=memory: rivals.ours(w, memory=m, **options))()
            return memory
        except BudgetError as error:
            assert error.least is not None
            memory = error.least


def sweep(
    work: Workload, count: int = 20, runs: int = RUNS, **options: Any
) -> Iterator[Row]:
    """Measure a workload in budgets from the least to what the plain run takes."""
    ready_gradients(work.parameters)
    plain = rivals.step(work, rivals.plain)
    plain()
    most = peak_bytes(plain)
    low = least(work, **options)
    for k in range(count):
        budget = low + (most - low) * k // (count - 1)
        run = retape.torch.recompute(memory=budget, **options)
        job = rivals.step(work, run(rivals.plain))
        peaks, again = list[int](), list[float]()
        for _ in range(runs):
            peaks.append(peak_bytes(job))
            again.append(run.report.recomputed / run.report.steps)
        yield Row(budget, peaks[0], again[0], max(peaks[1:], default=0), again[-1], job)


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    retape.torch.accelerate()
    options = {"mode": "loop"} if "--loop" in arguments else {}
    table = SMALL if "--small" in arguments else WORKLOADS
    names = [each for each in arguments if not each.startswith("--")] or list(table)
    for name in names:
        work = table[name]()
        ready_gradients(work.parameters)
        base = seconds(rivals.step(work, rivals.plain))
        table = Table(*COLUMNS, title=work.name)
        for row in sweep(work, **options):
            time, held = seconds(row.job, 2) / base, "yes" if row.holds else "OVER"
            peaks = row.budget / 1e6, row.first_peak / 1e6, row.peak / 1e6
            table.row(*peaks, row.first_again, row.again, time, held)


if __name__ == "__main__":
    main(sys.argv[1:])

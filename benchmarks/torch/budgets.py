"""Twenty budgets between the least and plain: does each hold, and does more cost less?

    python benchmarks/torch/budgets.py [--small] [--loop] [mlp|gpt|lstm|resnet|llama]

For each budget: the peak that the CPU allocator counted beyond the start, with leaf
gradients allocated before; operators run again over those recorded; processor time
over that of the plain run. `--small` takes models that are done in a second each.
"""

import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import rivals
import torch
import workloads
from measure import peak_bytes, ready_gradients, seconds
from workloads import WORKLOADS, Workload

import retape.torch
from retape._errors import BudgetError

SMALL: dict[str, Callable[[], Workload]] = {
    "mlp": lambda: workloads.mlp(40, 64, 512),
    "gpt": lambda: workloads.gpt(4, 64, 2, 64),
    "lstm": lambda: workloads.lstm(60, 32, 8),
    "resnet": lambda: workloads.resnet(2, 32),
    "llama": lambda: workloads.llama(3, 64, 64),
}


class Row(NamedTuple):
    """One budget. `again`: operators run again over operators recorded."""

    budget: int
    peak: int
    again: float
    job: Callable[[], None]


def least(work: Workload, **options: Any) -> int:
    """The least budget, as the errors name it."""
    memory = 1
    while True:
        try:
            rivals.step(work, lambda w, m=memory: rivals.ours(w, memory=m, **options))()
            return memory
        except BudgetError as error:
            found = re.search(r"at least `(\d+)`", str(error))
            assert found is not None
            memory = int(found.group(1))


def sweep(work: Workload, count: int = 20, **options: Any) -> Iterator[Row]:
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
        peak = peak_bytes(job)
        yield Row(budget, peak, run.report.recomputed / run.report.steps, job)


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
        print(f"\n{work.name:28s} {'budget MB':>10s} {'peak MB':>10s} again   time")
        for budget, peak, again, job in sweep(work, **options):
            print(
                f"{'':28s} {budget / 1e6:10.3f} {peak / 1e6:10.3f} {again:5.2f} "
                f"{seconds(job, 2) / base:6.2f}{'' if peak <= budget else '  OVER'}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])

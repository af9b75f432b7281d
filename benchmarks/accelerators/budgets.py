"""Budgets of the device's form: which are held, and how near the least one is.

For each program the least that any plan takes of those that are tried, the least budget
that is not refused beside it, and some budgets from that on, up to what the plain
gradient takes (Equinox's where there is none): how many are held, and the fullest.

    python -m benchmarks.accelerators.budgets [--device h100] [--count 7] [NAME ...]

`--device here` compiles the same for this machine, with the loops that a GPU gets.
"""

from __future__ import annotations

import contextlib
from itertools import product
from typing import Any

import jax
from benchmarks.accelerators.described import WORKLOADS, device, lowered, rivals, traced
from benchmarks.accelerators.workloads import Workload, scanned
from benchmarks.harness import Table, asked

import retape
import retape.jax
from retape.engines.jaxpr.jaxprs._target import compiling_for, target
from retape.engines.jaxpr.xla._ahead_of_time import aot_lower, compiled

SNAPSHOTS, STAGES = (1, 2, 3), (1, 2, 4)
"""Of the plans among which the least is looked for: more of either takes more."""


def nbytes(gradient: Any, workload: Workload) -> int:
    """Temporaries of a gradient, by the compiler; here as a user's `jax.jit` has it."""
    if target() is None:
        made = aot_lower(gradient, workload.point)
    else:
        made = lowered(traced(gradient, workload), workload)
    told = compiled(made).memory_analysis()
    assert told is not None
    return told.temp_size_in_bytes


def gradient(workload: Workload, plan: retape.Plan) -> Any:
    """With the value: without it XLA drops what only that needs, a state in BPTT."""
    program = workload.program(scanned)
    return retape.jax.value_and_grad(program, plan=plan, loops="device")


def least_of_plans(workload: Workload) -> int:
    """The fewest bytes of all plans that are tried."""
    sizes = product(SNAPSHOTS, STAGES)
    plans = [retape.fixed_space(snapshots=d, stage=k) for d, k in sizes]
    return min(nbytes(gradient(workload, plan), workload) for plan in plans)


def least_budget(workload: Workload) -> int:
    """The least that `within` says it needs."""
    try:
        nbytes(gradient(workload, retape.within(1)), workload)
    except retape.BudgetError as error:
        return error.least or 0
    raise AssertionError("a gradient in one byte")


def most(workload: Workload) -> int:
    """What a gradient takes that stores everything, or else a rival's."""
    for _, rival in rivals(workload):
        with contextlib.suppress(Exception):
            return nbytes(rival, workload)
    raise AssertionError("no rival can be compiled")


def rows(workload: Workload, count: int, table: Table) -> None:
    """Print a row for a program: its least budget, and how full budgets are."""
    possible, least = least_of_plans(workload), least_budget(workload)
    ratio = max(2.0, most(workload) / least) ** (1 / count)
    limits = [round(least * ratio**k) for k in range(count)]
    taken = [nbytes(gradient(workload, retape.within(b)), workload) for b in limits]
    held = sum(t <= b for t, b in zip(taken, limits, strict=True))
    worst = max(t / b for t, b in zip(taken, limits, strict=True))
    table.row(
        workload.name, possible, least, least / possible, f"{held} of {count}", worst
    )


def main() -> None:
    given = asked(
        __doc__, WORKLOADS, {"names": ["paper"], "count": 2}, device="h100", count=7
    )
    here = given.device == "here"
    described = None if here else device(given.device, fetch=not given.quick)
    title = "this machine" if described is None else described.title
    print(f"{title}, compiled by JAX {jax.__version__}")
    table = Table("", "least of plans", "least budget", "ratio", "held", "fullest")
    for name in given.names:
        with compiling_for(described):
            rows(WORKLOADS[name](), given.count, table)


if __name__ == "__main__":
    main()

"""Backpropagation through 10,000 cheap steps over 1,000 floats.

Each step rotates pairs by an angle that depends on the state's norm. Plain `scan`,
nested checkpointed scans written by hand, Equinox's checkpointed loop, and Retape on
the unannotated `scan` and on an unannotated loop whose trip count it does not know.

    python -m benchmarks.jax.bptt [--quick]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from benchmarks.accelerators.workloads import (
    bptt,
    by_hand,
    equinox,
    scanned,
    unknown,
)
from benchmarks.harness import asked
from benchmarks.jax.candidates import compare

import retape
import retape.jax

EQUINOX = (140, 64, 14, 8)
BUDGETS = (0.82, 0.58, 0.28, 0.15, 0.077, 0.06)
"""Megabytes: what the rivals take, in turn, and less."""


def main() -> None:
    """Print the table."""
    small = asked(__doc__).quick
    workload = bptt(small)
    candidates: dict[str, Callable[..., Any]] = {
        "plain scan": jax.grad(workload.program(scanned)),
        "scans by hand": jax.grad(workload.program(by_hand)),
    }
    for n in EQUINOX[-1:] if small else EQUINOX:
        gradient = jax.grad(workload.program(equinox(n)))
        candidates[f"equinox, {n} snapshots"] = gradient
    for megabytes in BUDGETS[:1] if small else BUDGETS:
        plan = retape.within(int(megabytes * 1e6) // (5 if small else 1))
        ours = partial(retape.jax.grad, plan=plan)
        name = f"retape, {plan.budget / 1e6:.3g} MB"
        candidates[name] = ours(workload.program(scanned))
        candidates[f"{name}, n unknown"] = ours(workload.program(unknown))
    title = f"BPTT, {workload.steps} steps of {workload.point.size} floats"
    compare(title, candidates, (workload.point,))


if __name__ == "__main__":
    main()

"""Ten times the horizon, in the memory of square-root blocks written by hand.

    pip install -r benchmarks/requirements.txt
    python -m benchmarks.solvers.square_root_blocks [jax-cfd] [XLB]

What is usual where a simulation does not fit: a scan over 32 blocks of 32 steps, each
under `jax.checkpoint`. Beside it a plan of ours over ten times as many steps. Bytes are
the compiler's temporaries; times are in units of a forward run over the same steps, the
least of three taken in turn. The gradients over 1,024 steps are compared.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import jax
from benchmarks.harness import Table
from benchmarks.jax.candidates import compiled, difference, timed
from benchmarks.solvers.program import Rollout
from benchmarks.solvers.simulator_programs import lattice_boltzmann, vorticity

import retape
import retape.jax

BLOCKS, LONGER = 32, 10
FLOWS = {"jax-cfd": (vorticity, 40), "XLB": (lattice_boltzmann, 40)}
"""With the snapshots of our plan."""


def measured(flow: Rollout, steps: int, gradient: Any) -> tuple[Any, float, float]:
    """A gradient, its megabytes, and its time in forward runs."""
    made = {"forward": compiled(flow.over(steps), flow.point)}
    made["ours"] = ours = compiled(gradient, flow.point)
    times = timed(made, (flow.point,), 3)
    ratio = times["ours"].least / times["forward"].least
    return ours(flow.point), ours.nbytes / 1e6, ratio


def main(names: list[str]) -> None:
    """Print three lines for each simulator."""
    steps = BLOCKS * BLOCKS
    table = Table("", "way", "steps", "MB", "forward runs", "apart")
    for name in names:
        make, snapshots = FLOWS[name]
        flow = make()
        plan = retape.fixed_space(snapshots=snapshots)
        ours = partial(retape.jax.grad, plan=plan)
        in_blocks = jax.grad(flow.in_blocks(BLOCKS, BLOCKS))
        by_hand, *cells = measured(flow, steps, in_blocks)
        table.row(name, "by hand", steps, *cells, None)
        found, *cells = measured(flow, steps, ours(flow.over(steps)))
        table.row(name, "ours", steps, *cells, f"{difference(found, by_hand):.0e}")
        _, *cells = measured(flow, LONGER * steps, ours(flow.over(LONGER * steps)))
        table.row(name, "ours", LONGER * steps, *cells, None)


if __name__ == "__main__":
    main(sys.argv[1:] or list(FLOWS))

"""Ten times the horizon, in the memory of square-root blocks written by hand.

    pip install -r benchmarks/requirements.txt
    python benchmarks/solvers/square_root_blocks.py [jax-cfd] [XLB]

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
import numpy as np
from program import Rollout
from simulator_programs import lattice_boltzmann, vorticity
from simulators import compiled, least_seconds

import retape
import retape.jax

BLOCKS, LONGER = 32, 10
FLOWS = {"jax-cfd": (vorticity, 40), "XLB": (lattice_boltzmann, 40)}
"""With the snapshots of our plan."""


def measured(flow: Rollout, steps: int, gradient: Any) -> tuple[Any, str]:
    """A gradient, and its line."""
    forward, _ = compiled(flow.over(steps), flow.point)
    made, size = compiled(gradient, flow.point)
    once, there_and_back = least_seconds([forward, made], flow.point)
    ratio = there_and_back / once
    return made(flow.point), f"{steps:6} steps {size / 1e6:8.2f} MB {ratio:6.1f} x"


def main(names: list[str]) -> None:
    """Print three lines for each simulator."""
    steps = BLOCKS * BLOCKS
    for name in names:
        make, snapshots = FLOWS[name]
        flow = make()
        plan = retape.fixed_space(snapshots=snapshots)
        ours = partial(retape.jax.grad, plan=plan)
        by_hand, said = measured(flow, steps, jax.grad(flow.in_blocks(BLOCKS, BLOCKS)))
        print(f"{name:8} by hand  {said}", flush=True)
        found, said = measured(flow, steps, ours(flow.over(steps)))
        off = np.max(np.abs(found - by_hand)) / np.max(np.abs(by_hand))
        print(f"{name:8} ours     {said}   difference {off:.0e}", flush=True)
        _, said = measured(flow, LONGER * steps, ours(flow.over(LONGER * steps)))
        print(f"{name:8} ours     {said}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(FLOWS))

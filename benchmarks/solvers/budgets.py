"""A diffrax solve at five sizes of memory: our adjoint beside its own, in turn.

    python benchmarks/solvers/budgets.py [POINTS OF THE GRID]

A reaction on a grid, adaptive steps, some 900 of them. For each number of checkpoints
of `RecursiveCheckpointAdjoint` ours is given as many snapshots. Bytes are the
compiler's temporaries; times the least of five, in units of a forward solve. Both
gradients are compared.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import diffrax as dfx

import retape
import retape.diffrax


def loss(y0: Any, adjoint: Any) -> Any:
    """The end of a run."""

    def field(t: Any, y: Any, args: Any) -> Any:
        return 30 * (jnp.roll(y, 1) + jnp.roll(y, -1) - 2 * y) + jnp.sin(3 * y)

    solution = dfx.diffeqsolve(
        dfx.ODETerm(field),
        dfx.Tsit5(),
        0.0,
        20.0,
        0.01,
        y0,
        stepsize_controller=dfx.PIDController(rtol=1e-4, atol=1e-6),
        max_steps=4096,
        adjoint=adjoint,
    )
    return jnp.sum(solution.ys**2), solution.stats["num_steps"]


def compiled(adjoint: Any, y0: Any) -> tuple[Any, int]:
    """The gradient's program, and its temporaries' bytes."""
    gradient = jax.jit(jax.grad(lambda y: loss(y, adjoint)[0]))
    made = gradient.lower(y0).compile()
    return made, made.memory_analysis().temp_size_in_bytes


def least_seconds(programs: list[Any], y0: Any, times: int = 5) -> list[float]:
    """The least time of each, taken in turn."""
    best = [float("inf")] * len(programs)
    for _ in range(times):
        for i, program in enumerate(programs):
            began = time.perf_counter()
            jax.block_until_ready(program(y0))
            best[i] = min(best[i], time.perf_counter() - began)
    return best


def main(points: int) -> None:
    """Print the table."""
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")
    y0 = jnp.sin(jnp.linspace(0.0, 9.0, points))
    forward = jax.jit(lambda y: loss(y, dfx.ForwardMode())).lower(y0).compile()
    print(f"{points} points, {int(forward(y0)[1])} steps; MB, multiples of forward")
    row = "{:>5} {:>9} {:>6} {:>9} {:>6} {:>11}".format
    print(row("n", "diffrax", "time", "ours", "time", "difference"))
    for count in (5, 10, 20, 40, 80):
        plan = retape.fixed_space(snapshots=count, stage=1)
        adjoints = (
            dfx.RecursiveCheckpointAdjoint(count),
            retape.diffrax.RetapeAdjoint(plan),
        )
        made = [compiled(adjoint, y0) for adjoint in adjoints]
        programs = [program for program, _ in made]
        once, *seconds = least_seconds([forward, *programs], y0)
        theirs, ours = [np.asarray(program(y0)) for program in programs]
        far = np.max(np.abs(ours - theirs)) / np.max(np.abs(theirs))
        cells: list[str] = []
        for (_, size), taken in zip(made, seconds, strict=True):
            cells += [f"{size / 1e6:.2f}", f"{taken / once:.1f}"]
        print(row(count, *cells, f"{far:.0e}"), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)

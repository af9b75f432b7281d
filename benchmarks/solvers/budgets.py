"""A diffrax solve at five sizes of memory: our adjoint beside its own, in turn.

    python -m benchmarks.solvers.budgets [--points 2000]

A reaction on a grid, adaptive steps, some 900 of them. For each number of checkpoints
of `RecursiveCheckpointAdjoint` ours is given as many snapshots. Bytes are the
compiler's temporaries; times the least of five, in units of a forward solve. Both
gradients are compared.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
from benchmarks.harness import Table, asked
from benchmarks.jax.candidates import compiled, difference, timed

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


def main() -> None:
    """Print the table."""
    quick = {"points": 100, "snapshots": "5"}
    given = asked(__doc__, quick=quick, points=2000, snapshots="5 10 20 40 80")
    points = given.points
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")
    y0 = jnp.sin(jnp.linspace(0.0, 9.0, points))
    forward = compiled(lambda y: loss(y, dfx.ForwardMode()), y0)
    title = f"{points} points, {int(forward(y0)[1])} steps; times in forward solves"
    table = Table("n", "diffrax MB", "time", "ours MB", "time ", "apart", title=title)
    for count in map(int, given.snapshots.split()):
        plan = retape.fixed_space(snapshots=count, stage=1)
        adjoints = (
            dfx.RecursiveCheckpointAdjoint(count),
            retape.diffrax.RetapeAdjoint(plan),
        )
        theirs, ours = (
            compiled(jax.grad(lambda y, by=by: loss(y, by)[0]), y0) for by in adjoints
        )
        made = {"forward": forward, "theirs": theirs, "ours": ours}
        times = timed(made, (y0,), 5)
        cells: list[float] = []
        for name in ("theirs", "ours"):
            once = times["forward"].least
            cells += [made[name].nbytes / 1e6, times[name].least / once]
        far = difference(ours(y0), theirs(y0))
        table.row(count, *cells, f"{far:.0e}")


if __name__ == "__main__":
    main()

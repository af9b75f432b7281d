"""An adaptive solve of 500 coupled Van der Pol oscillators, differentiated.

Diffrax's own `RecursiveCheckpointAdjoint`, against `retape.jax.grad` of the same solve
whose loop is an ordinary `lax.while_loop` (what `ForwardMode` leaves in the program).
Run: `python benchmarks/jax/adaptive_ode.py`, or with `--save 1000` for a loss of the
solution at so many times, which the solver writes into buffers as it passes them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
from _measure import compare, show

import retape
import retape.jax

OSCILLATORS = 500


def field(t: Any, y: Any, mu: Any) -> Any:
    """Van der Pol oscillators in a ring, each pulled towards its neighbours."""
    del t
    x, v = y
    pull = 0.1 * (jnp.roll(x, 1) - 2 * x + jnp.roll(x, -1))
    return v, mu * (1 - x**2) * v - x + pull


def loss(adjoint: Any, times: int = 0) -> Callable[..., Any]:
    """The solution's last state, or the mean over many times, squared and summed."""
    saved = jnp.linspace(0.0, 100.0, times) if times else None

    def of(x: Any, mu: Any) -> Any:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            diffrax.Tsit5(),
            t0=0.0,
            t1=100.0,
            dt0=0.01,
            y0=(x, jnp.zeros_like(x)),
            args=mu,
            adjoint=adjoint,
            stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-5),
            max_steps=None if isinstance(adjoint, diffrax.ForwardMode) else 10_000,
            saveat=diffrax.SaveAt(ts=saved) if times else diffrax.SaveAt(t1=True),
        )
        return jnp.sum(solution.ys[0] ** 2) / solution.ys[0].shape[0]

    return of


def final(x: Any, mu: Any) -> None:
    """The gradient of a loss of the last state."""
    candidates: dict[str, Callable[..., Any]] = {}
    for n in (90, 64, 32, 16, 8):
        adjoint = diffrax.RecursiveCheckpointAdjoint(checkpoints=n)
        candidates[f"diffrax, {n} checkpoints"] = jax.grad(loss(adjoint))
    unbounded = loss(diffrax.ForwardMode())
    # What the five above take, in turn, as their compiled programs report it.
    for megabytes in (0.92, 0.66, 0.39, 0.26, 0.21):
        plan = retape.within(int(megabytes * 1e6))
        name = f"retape, {megabytes} MB"
        candidates[name] = retape.jax.grad(unbounded, plan=plan)
    rows = compare(candidates, (x, mu), base="diffrax, 90 checkpoints", rounds=15)
    show(f"adaptive solve, {OSCILLATORS} Van der Pol oscillators", rows)
    plan = retape.within(int(0.51e6))
    print(retape.jax.measure(unbounded, x, mu, plan=plan).report)
    print(retape.jax.explain(unbounded, x, mu, plan=plan))


def saving(x: Any, mu: Any, times: int) -> None:
    """The gradient of a loss of the states at many times."""
    candidates: dict[str, Callable[..., Any]] = {}
    for n in (90, 32, 8):
        adjoint = diffrax.RecursiveCheckpointAdjoint(checkpoints=n)
        candidates[f"diffrax, {n} checkpoints"] = jax.grad(loss(adjoint, times))
    unbounded = loss(diffrax.ForwardMode(), times)
    for n, stage in ((40, 64), (64, 16), (8, 4)):
        plan = retape.fixed_space(snapshots=n, stage=stage)
        name = f"retape, {n} snapshots, stages of {stage}"
        candidates[name] = retape.jax.grad(unbounded, plan=plan)
    rows = compare(candidates, (x, mu), base="diffrax, 90 checkpoints", rounds=15)
    show(f"the same, its states saved at {times} times", rows)
    for n in (10, 100, times):
        found = retape.jax.explain(loss(diffrax.ForwardMode(), n), x, mu)
        print(f"{n} times: {found.capsule_bytes} bytes in a snapshot")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--save", type=int, default=0, metavar="TIMES")
    times = parser.parse_args().save
    x = jnp.linspace(-2.0, 2.0, OSCILLATORS, dtype=jnp.float32)
    mu = jnp.float32(1.5)
    if times:
        saving(x, mu, times)
    else:
        final(x, mu)


if __name__ == "__main__":
    main()

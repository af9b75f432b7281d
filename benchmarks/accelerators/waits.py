"""How often a GPU's host would wait for each step run, in both forms of a sweep.

No GPU is needed (`retape.jax.count_waits`); sizes are small, stages of 64 steps.
Run: `python -m benchmarks.accelerators.waits [NAME ...]`, with a workload's name.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from benchmarks.accelerators.workloads import ALL, Workload, adaptive, humanoid, scanned

import retape
import retape.jax

PLAN = retape.fixed_space(snapshots=8, stage=64)


def counted(workload: Workload, loops: Any) -> tuple[int, int, int]:
    """Steps of a run, steps run in all, waits."""
    how: Any = {"plan": PLAN, "loops": loops}
    program = workload.program(scanned)
    report = retape.jax.measure(program, workload.point, **how).report
    gradient = retape.jax.grad(program, **how)
    waits = retape.jax.count_waits(gradient, workload.point).waits
    return report.length, report.advances + report.taped, waits


def one_loop() -> Workload:
    """A thousand cheap steps, a number that is known."""
    step = lambda x: jnp.sin(x) + 0.1 * x  # noqa: E731
    program = lambda loop: lambda x: jnp.sum(loop(step, x, 1000) ** 2)  # noqa: E731
    return Workload("one loop, known", program, jnp.linspace(0.1, 1, 1000), 1000)


def until() -> Workload:
    """A thousand cheap steps, a number that only the end tells."""

    def program(loop: Any) -> Any:
        del loop
        body = lambda s: (s[0] + 1, 1.1 * jnp.cos(s[1]))  # noqa: E731
        more = lambda s: (s[0] < 1000) & (jnp.sum(s[1]) < 1e9)  # noqa: E731
        return lambda x: jnp.sum(jax.lax.while_loop(more, body, (0, x))[1] ** 2)

    return Workload("one loop, unknown", program, jnp.linspace(0.1, 1, 1000), None)


def nested(bound: int | None) -> Workload:
    """Loops of 20 steps in a loop of 40; their length is known if it is the bound."""

    def program(loop: Any) -> Any:
        def turn(x: Any) -> Any:
            step = lambda v: jnp.sin(v) + 0.1 * x  # noqa: E731
            if bound is not None:
                return loop(step, x, bound)
            more = lambda s: (s[0] < 20) & (s[1][0] < 9)  # noqa: E731
            return jax.lax.while_loop(more, lambda s: (s[0] + 1, step(s[1])), (0, x))[1]

        return lambda x: jnp.sum(loop(turn, x, 40) ** 2)

    length = "unknown" if bound is None else "known"
    return Workload(f"two nested, {length}", program, jnp.linspace(0.1, 1, 9999), 40)


def solve(adjoint: Any = None) -> Workload:
    """An adaptive solve of a hundred steps and more."""
    return adaptive(True, 20.0, adjoint)


def by_adjoint() -> list[tuple[int, int, int]]:
    """The same for diffrax's users: a plain gradient, through our adjoint."""
    from retape.diffrax import RetapeAdjoint

    n, run, waits = counted(solve(), "host")
    through = solve(RetapeAdjoint(plan=PLAN))
    gradient = jax.grad(through.program(scanned))
    return [
        (n, run, waits),
        (n, run, retape.jax.count_waits(gradient, through.point)[1]),
    ]


def falling() -> Workload:
    """Forty steps of MJX, each with its solver's loops."""
    return humanoid(True, 40)


def main(wanted: list[str]) -> None:
    """Print a row for each program."""
    programs: dict[str, Callable[[], Workload]] = {
        "known": one_loop,
        "unknown": until,
        "nested-known": lambda: nested(20),
        "nested-unknown": lambda: nested(None),
        **{name: lambda make=make: make(True) for name, make in ALL.items()},
        "adaptive": solve,
        "humanoid": falling,
    }
    print("| program | steps | waits a step run, host's form | device's form |")
    print("|---|---|---|---|")
    for name in wanted or [*programs, "adjoint"]:
        if name == "adjoint":
            title, rows = "adaptive solve, `RetapeAdjoint`", by_adjoint()
        else:
            title = programs[name]().name
            rows = [counted(programs[name](), form) for form in ("host", "device")]
        ratios = [f"{waits / run:.3f}" for _, run, waits in rows]
        print(f"| {title} | {rows[0][0]} | {' | '.join(ratios)} |", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    jax.config.update("jax_enable_x64", True)
    main(sys.argv[1:])

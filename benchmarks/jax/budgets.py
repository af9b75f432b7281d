"""Budgets in bytes, against what the compiler reports.

For each program and budget: the temporary memory of the compiled gradient, and its
share of the budget, which must not exceed 1. Run: `python -m benchmarks.jax.budgets`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from benchmarks.harness import Table
from benchmarks.jax.candidates import compiled
from jax import lax

import retape
import retape.jax


def rotations(x: Any) -> Any:
    """Ten thousand rotations of pairs by an angle that depends on the state."""

    def step(x: Any, _: Any) -> tuple[Any, None]:
        angle = 0.007 * jnp.sqrt(jnp.sum(x * x))
        c, s = jnp.cos(angle), jnp.sin(angle)
        a, b = x[0::2], x[1::2]
        return jnp.stack([c * a - s * b, s * a + c * b], 1).reshape(-1), None

    return jnp.sum(lax.scan(step, x, None, length=10_000)[0] ** 2)


def heat(x: Any) -> Any:
    """A heat equation until it is nearly even: a `while` whose length nobody knows."""

    def step(u: Any) -> Any:
        return u + 0.2 * (jnp.roll(u, 1) + jnp.roll(u, -1) - 2 * u) * (1 + 0.1 * u**2)

    u = lax.while_loop(lambda u: jnp.max(u) - jnp.min(u) > 0.5, step, x)
    return jnp.sum(u**2)


def network(x: Any) -> Any:
    """Two hundred layers of the same weights."""
    w = jnp.eye(256) * 0.9 + 0.01

    def layer(x: Any, _: Any) -> tuple[Any, None]:
        return jnp.tanh(x @ w), None

    return jnp.sum(lax.scan(layer, x, None, length=200)[0])


PROGRAMS: dict[str, tuple[Callable[..., Any], Any, tuple[float, ...]]] = {
    "rotations": (rotations, jnp.linspace(1.0, 2.0, 1000), (0.08, 0.15, 0.4, 1, 3, 10)),
    "heat": (heat, jnp.linspace(0.0, 3.0, 512), (0.06, 0.1, 0.3, 1, 3)),
    "network": (network, jnp.ones((64, 256)), (1.0, 2, 4, 8)),
}


def main() -> None:
    """Print the table; a budget that is exceeded ends the program."""
    table = Table("", "budget MB", "MB", "share")
    for name, (program, x, budgets) in PROGRAMS.items():
        for megabytes in budgets:
            plan = retape.within(int(megabytes * 1e6))
            try:
                got = compiled(retape.jax.grad(program, plan=plan), x).nbytes
            except retape.BudgetError as error:
                table.row(name, megabytes, f"at least {error.least} bytes", None)
                continue
            assert got <= plan.budget
            table.row(name, megabytes, got / 1e6, got / plan.budget)


if __name__ == "__main__":
    main()

"""Loops that each device leaves at its own time: run by `test_shard_map.py`.

What they read is partly the same on all devices. Prints one JSON object: for each case
the greatest difference from plain reverse mode of the same steps written out.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import retape
import retape.jax
from tests.engines.jaxpr.support.eight_devices import SPLIT, WHOLE, difference, mesh_of

Step = Callable[[Any, Any, Any], Any]
PLAN = retape.fixed_space(snapshots=2, stage=2)


def direct(y: Any, p: Any, i: Any) -> Any:
    return jnp.sin(y * p) + jnp.exp(p) * y * 0.1


def row_by_number(y: Any, p: Any, i: Any) -> Any:
    return lax.fori_loop(0, 3, lambda k, v: v * p[k] + jnp.sin(v), y)


def rows_of_a_scan(y: Any, p: Any, i: Any) -> Any:
    return lax.scan(lambda c, w: (jnp.sin(c * w) + jnp.cos(p), None), y, p)[0]


def branch(y: Any, p: Any, i: Any) -> Any:
    return lax.cond(y[0] > 0.5, lambda y: y * p, lambda y: jnp.sin(y) + p, y)


def inner_loop(y: Any, p: Any, i: Any) -> Any:
    turn = lambda c: (c[0] + 1, jnp.sin(c[1] * p) + 0.1)  # noqa: E731
    return lax.while_loop(lambda c: c[0] < 1 + i % 3, turn, (0, y))[1]


def ruled(y: Any, p: Any, i: Any) -> Any:
    return jax.nn.softplus(p) * y + jax.jit(jnp.where)(y > 0, y * p, p)


def again(y: Any, p: Any, i: Any) -> Any:
    return jax.checkpoint(lambda y, p: jnp.sin(y * p) * jnp.exp(p))(y, p)


STEPS = (direct, row_by_number, rows_of_a_scan, branch, inner_loop, ruled, again)
INSIDE = (direct, inner_loop)
"""Of these the gradient is taken on each device, too; the others go the same way."""


def trips(device: Any) -> Any:
    return device % 4 + 1


def each(step: Step, p: Any, x: Any) -> Any:
    """One device's part."""
    n, p = trips(lax.axis_index("d")), 1.5 * p
    turn = lambda c: (c[0] + 1, step(c[1], p, c[0]))  # noqa: E731
    return lax.while_loop(lambda c: c[0] < n, turn, (0, x[0]))[1]


def written_out(step: Step, p: Any, x: Any) -> Any:
    """All parts, one after another, without a loop that JAX could not reverse."""
    total, p = 0.0, 1.5 * p
    for device in range(8):
        y = x[device]
        for i in range(trips(device)):
            y = inner_written_out(y, p, i) if step is inner_loop else step(y, p, i)
        total += jnp.sum(jnp.sin(y))
    return total


def inner_written_out(y: Any, p: Any, i: int) -> Any:
    for _ in range(1 + i % 3):
        y = jnp.sin(y * p) + 0.1
    return y


def main() -> None:
    mesh = mesh_of()
    p, x = jnp.array([0.5, 1.2, 0.3]), jnp.arange(24.0).reshape(8, 3) / 10
    found: dict[str, float] = {}
    for step in STEPS:

        def mapped(f: Any, out: Any) -> Any:
            return jax.shard_map(f, mesh=mesh, in_specs=(WHOLE, SPLIT), out_specs=out)

        parts = mapped(lambda p, x: each(step, p, x)[None], SPLIT)  # noqa: B023

        def total(p: Any, x: Any) -> Any:
            mine = jnp.sum(jnp.sin(each(step, p, x)))  # noqa: B023
            return lax.psum(mine, "d")

        outside = retape.jax.grad(
            lambda p, x: jnp.sum(jnp.sin(parts(p, x))),  # noqa: B023
            (0, 1),
            plan=PLAN,
        )
        inside = mapped(retape.jax.grad(total, (0, 1), plan=PLAN), (WHOLE, SPLIT))
        plain = jax.grad(lambda p, x: written_out(step, p, x), (0, 1))  # noqa: B023
        want = plain(p, x)
        found[f"{step.__name__}, outside"] = difference(outside(p, x), want)
        if step in INSIDE:
            found[f"{step.__name__}, inside"] = difference(jax.jit(inside)(p, x), want)
        if step is direct:
            along = lambda g: jax.jvp(g, (p, x), (p, x))[1]  # noqa: E731
            found["forward over reverse"] = difference(along(outside), along(plain))
            lie = difference(outside(p, x), plain(p * (1 + 1e-6), x))
            found["a small lie"] = lie
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()

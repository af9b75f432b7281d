"""Two thousand steps over a large state: what the machine costs where steps are dear.

Plain `scan`, checkpointed scans nested by hand, and Retape on the unannotated `scan`
and on a `while_loop` whose trip count it does not know. Runs on whatever device JAX
finds. Run: `python benchmarks/jax/large_state.py [FLOATS]`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from _measure import compare, show
from jax import lax

import retape
import retape.jax

STEPS = 2_000


def body(x: Any, w: Any) -> Any:
    """A nonlinear stencil: neighbours, a sine, a product."""
    return x + w * jnp.sin(jnp.roll(x, 1) - 2 * x + jnp.roll(x, -1)) * (1 - 0.1 * x * x)


def plain(x: Any, w: Any, steps: Any) -> Any:
    del steps
    x = lax.scan(lambda x, _: (body(x, w), None), x, None, length=STEPS)[0]
    return jnp.mean(x * x)


def unknown(x: Any, w: Any, steps: Any) -> Any:
    x = lax.fori_loop(0, steps, lambda _, x: body(x, w), x)
    return jnp.mean(x * x)


def by_hand(x: Any, w: Any, steps: Any) -> Any:
    """40 x 50 checkpointed steps."""
    del steps
    checkpoint = functools.partial(jax.checkpoint, prevent_cse=False)
    step = checkpoint(lambda x, _: (body(x, w), None))
    inner = checkpoint(lambda x, _: (lax.scan(step, x, None, length=50)[0], None))
    x = lax.scan(inner, x, None, length=40)[0]
    return jnp.mean(x * x)


def main(size: int) -> None:
    x, w = jnp.sin(jnp.linspace(0.0, 50.0, size)), jnp.float32(0.1)
    gradient = functools.partial(jax.grad, argnums=(0, 1))
    ours = functools.partial(retape.jax.grad, argnums=(0, 1))
    candidates: dict[str, Callable[..., Any]] = {
        "plain scan": gradient(plain),
        "by hand, 40 x 50": gradient(by_hand),
    }
    for states in (30, 90, 300):
        plan = retape.within(states * 4 * size)
        candidates[f"retape, {states} states"] = ours(plain, plan=plan)
        candidates[f"retape, {states} states, n unknown"] = ours(unknown, plan=plan)
    rows = compare(candidates, (x, w, STEPS), base="plain scan", rounds=3)
    device = jax.devices()[0].device_kind
    show(f"{STEPS} steps over {size} floats on {device}, JAX {jax.__version__}", rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)

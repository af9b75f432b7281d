"""Backpropagation through 10,000 cheap steps over 1,000 floats.

Each step rotates pairs by an angle that depends on the state's norm. Plain `scan`,
nested checkpointed scans written by hand, Equinox's checkpointed scan, and Retape on
the unannotated `scan` and on an unannotated `while_loop` whose trip count it does not
know. Run: `python benchmarks/jax/bptt.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from _measure import compare, show
from jax import lax

import retape
import retape.jax

STEPS, SIZE = 10_000, 1_000


def body(x: Any, w: Any) -> Any:
    """Rotate neighbouring pairs by an angle that depends on the state."""
    angle = w * jnp.sqrt(jnp.sum(x * x)) * 0.01
    c, s = jnp.cos(angle), jnp.sin(angle)
    a, b = x[0::2], x[1::2]
    return jnp.roll(jnp.stack([c * a - s * b, s * a + c * b], 1).reshape(-1), 1)


def loss(run: Callable[..., Any]) -> Callable[..., Any]:
    def of(x: Any, w: Any, steps: Any) -> Any:
        y = run(x, w, steps)
        return jnp.sum(y * y * jnp.arange(SIZE)) / SIZE

    return of


def plain(x: Any, w: Any, steps: Any) -> Any:
    del steps
    return lax.scan(lambda x, _: (body(x, w), None), x, None, length=STEPS)[0]


def unknown(x: Any, w: Any, steps: Any) -> Any:
    """The same as a `while_loop`: the trip count is an argument."""
    return lax.fori_loop(0, steps, lambda _, x: body(x, w), x)


def nested(*lengths: int, body_too: bool = True) -> Callable[..., Any]:
    """Checkpointed scans in checkpointed scans, by hand, for this trip count."""
    assert math.prod(lengths) == STEPS
    checkpoint = functools.partial(jax.checkpoint, prevent_cse=False)

    def run(x: Any, w: Any, steps: Any) -> Any:
        del steps

        def innermost(x: Any, _: Any) -> Any:
            return body(x, w), None

        step: Any = checkpoint(innermost) if body_too else innermost
        for level, length in enumerate(reversed(lengths)):
            scan = functools.partial(_scan, step, length)
            step = checkpoint(scan) if level < len(lengths) - 1 else scan
        return step(x, None)[0]

    return run


def _scan(step: Any, length: int, x: Any, _: Any) -> Any:
    return lax.scan(step, x, None, length=length)[0], None


def equinox(checkpoints: int) -> Callable[..., Any]:
    def run(x: Any, w: Any, steps: Any) -> Any:
        del steps
        step = lambda x, _: (body(x, w), None)  # noqa: E731
        return eqxi.scan(
            step, x, None, length=STEPS, kind="checkpointed", checkpoints=checkpoints
        )[0]

    return run


def main() -> None:
    x, w = jnp.linspace(1.0, 2.0, SIZE, dtype=jnp.float32), jnp.float32(0.7)
    gradient = functools.partial(jax.grad, argnums=(0, 1))
    ours = functools.partial(retape.jax.grad, argnums=(0, 1))
    candidates = {
        "plain scan": gradient(loss(plain)),
        "checkpointed body": gradient(loss(nested(STEPS))),
        "by hand, 100 x 100": gradient(loss(nested(100, 100))),
        "by hand, 20 x 20 x 25": gradient(loss(nested(20, 20, 25))),
    }
    for n in (140, 64, 14, 8):
        candidates[f"equinox, {n} snapshots"] = gradient(loss(equinox(n)))
    for n in (0.82, 0.58, 0.28, 0.15, 0.077, 0.06):
        plan = retape.within(int(n * 1e6))
        candidates[f"retape, {n} MB"] = ours(loss(plain), plan=plan)
        candidates[f"retape, {n} MB, n unknown"] = ours(loss(unknown), plan=plan)
    rows = compare(candidates, (x, w, STEPS), base="plain scan")
    show(f"BPTT, {STEPS} steps of {SIZE} floats", rows)


if __name__ == "__main__":
    main()

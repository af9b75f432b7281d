"""What watching a gradient's health costs: the same call with and without, in turn.

    python benchmarks/jax/health.py [ROUNDS]

`retape.jax.measure(..., health=True)` against `health=False`, programs compiled before.
Ratios are taken within a round and their median is shown: neighbours on the machine
slow both. The programs have steps that are cheap, middling and dear, where watching
weighs most and least.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import retape
import retape.jax

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.with_and_without import with_and_without  # noqa: E402

PLAN = retape.fixed_space(snapshots=10)


def advected(size: int, steps: int) -> Callable[[Any], Any]:
    """A few operations on each of `size` numbers."""

    def run(x: Any) -> Any:
        def step(k: Any, y: Any) -> Any:
            return y + 0.1 * (jnp.roll(y, 1) - y) - 1e-3 * jnp.sin(y)

        return jnp.sum(jax.lax.fori_loop(0, steps, step, jnp.full(size, x)) ** 2)

    return run


def recurrent(size: int, steps: int) -> Callable[[Any], Any]:
    """A product with a matrix in each step."""
    weights = jax.random.orthogonal(jax.random.key(0), size)

    def run(x: Any) -> Any:
        def step(k: Any, h: Any) -> Any:
            return jnp.tanh(weights @ h + x)

        return jnp.sum(jax.lax.fori_loop(0, steps, step, jnp.zeros(size)))

    return run


PROGRAMS = {
    "1,000 numbers, 2,000 steps": advected(1000, 2000),
    "1,000 numbers, 20,000 steps": advected(1000, 20_000),
    "100,000 numbers, 100 steps": advected(100_000, 100),
    "matrix of 256, 500 steps": recurrent(256, 500),
}


def seconds(fun: Callable[[Any], Any], watch: bool) -> float:
    """One call, with what it reports."""
    began = time.perf_counter()
    if watch:
        found = retape.jax.measure(fun, 0.5, plan=PLAN, health=True)
        assert found.health.fault is None
    else:
        found = retape.jax.measure(fun, 0.5, plan=PLAN)
    jax.block_until_ready(found.gradient)
    return time.perf_counter() - began


def main(rounds: int) -> None:
    """Print a line for each program."""
    for name, fun in PROGRAMS.items():
        seconds(fun, True), seconds(fun, False)
        said = with_and_without(partial(seconds, fun), rounds)
        print(f"{name:30} {said}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)

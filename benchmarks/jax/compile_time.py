"""Time to trace, lower and compile: `retape.jax.grad` against forward mode.

    python -m benchmarks.jax.compile_time [--quick] [NAME ...]

The paper's example (Figs. 8 and 28), a physics step of MJX with a contact, loops nested
one to five deep, and small programs: what is compiled if there is next to nothing to
compile. Processor seconds, so that other work on the machine does not count, Python
(tracing and lowering) and XLA apart; the least of some runs in turn, five of a program
that takes a tenth of a second, one of a program that takes five.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from benchmarks.accelerators.workloads import humanoid, scanned
from benchmarks.harness import EXAMPLES, Table, asked

import retape
import retape.jax

sys.path.insert(0, str(EXAMPLES))

import adaptive_grid  # noqa: E402

Made = tuple[Callable[[Any], Any], Any]
PLAN = retape.fixed_space(snapshots=20)
ENOUGH = 5.0
"""Seconds for a row, about."""


def grid() -> Made:
    jax.config.update("jax_enable_x64", True)
    x = jnp.arange(1000.0, 0.0, -1.0)
    return lambda x: adaptive_grid.program(x, 53.0), x


def physics() -> Made:
    """One step of MJX, a contact in it."""
    work = humanoid(True, 1)
    return work.program(scanned), work.point


def nest(depth: int) -> Made:
    """Loops in loops, a little arithmetic in each."""

    def level(k: int, x: Any) -> Any:
        if k == 0:
            return jnp.sin(x) + 0.1 * x
        inner = lambda _, x: 1.01 * level(k - 1, x)  # noqa: E731
        return jax.lax.while_loop(
            lambda c: c[0] < 3, lambda c: (c[0] + 1, inner(*c)), (0, x)
        )[1]

    return (lambda x: jnp.sum(level(depth, x))), jnp.ones(100)


STATE = jnp.ones(16)
WEIGHTS = 0.05 * jnp.ones((16, 16))


def grown(x: Any) -> Any:
    return jax.lax.fori_loop(0, 10, lambda _, y: 1.1 * jnp.sin(y), x)


def short_scan(x: Any) -> Any:
    turn = lambda c, _: (jnp.tanh(WEIGHTS @ c), c[0])  # noqa: E731
    last, rows = jax.lax.scan(turn, x, None, length=10)
    return jnp.sum(last) + jnp.sum(rows**2)


def chain(x: Any) -> Any:
    return jnp.sum(jnp.cos(jnp.exp(-2 * jnp.sin(x))) ** 2)


def two_loops(x: Any) -> Any:
    return jax.lax.fori_loop(0, 5, lambda _, x: grown(x), x).sum()


def halved(x: Any) -> Any:
    """Of a length that only a run tells."""
    return jnp.sum(jax.lax.while_loop(lambda v: jnp.sum(v) > 1, lambda v: v / 2, x))


def pendulum(x: Any) -> Any:
    def step(state: Any) -> Any:
        angle, speed = state
        speed = speed - 1e-3 * jnp.sin(angle)
        return angle + 1e-3 * speed, speed

    return jax.lax.while_loop(lambda state: state[0] > 0, step, (x[0], 0.0 * x[0]))[1]


def batched(x: Any) -> Any:
    return jnp.sum(jax.vmap(grown)(jnp.outer(x, x)))


SMALL = (chain, short_scan, two_loops, halved, pendulum, batched)
PROGRAMS: dict[str, Callable[[], Made]] = {
    **{f.__name__: lambda f=f: (f, STATE) for f in SMALL},
    **{f"nest-{depth}": partial(nest, depth) for depth in range(1, 6)},
    "physics": physics,
    "grid": grid,
}


def parts(fun: Callable[..., Any], x: Any) -> tuple[float, float]:
    """Processor seconds of Python and of XLA."""
    retape.jax.clear_caches()
    began = time.process_time()
    lowered = jax.jit(fun).lower(x)
    middle = time.process_time()
    lowered.compile()
    return middle - began, time.process_time() - middle


def main() -> None:
    """Print a row for each program."""
    given = asked(__doc__, PROGRAMS, {"names": ["chain", "halved"]})
    columns = "forward, Python ms", "XLA ms", "retape, Python ms", "XLA ms ", "ratio"
    table = Table("", *columns)
    for name in given.names:
        fun, x = PROGRAMS[name]()
        funs = (
            lambda x, fun=fun: jax.jvp(fun, (x,), (x,)),
            retape.jax.grad(fun, plan=PLAN),
        )
        taken: list[list[tuple[float, float]]] = []
        began = time.process_time()
        while len(taken) < 5 and time.process_time() - began < ENOUGH:
            taken.append([parts(each, x) for each in funs])
        turns = [[*forward, *ours] for forward, ours in taken]
        least = [1e3 * min(seconds) for seconds in zip(*turns, strict=True)]
        table.row(name, *least, sum(least[2:]) / sum(least[:2]))


if __name__ == "__main__":
    main()

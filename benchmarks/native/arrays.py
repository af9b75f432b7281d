"""Products and whole arrays, compiled: `python -m benchmarks.native.arrays`.

Seconds of the processor, on one thread: as NumPy runs the function, as we do, our
gradient in one stage, and JAX's of the same program where JAX's arrays can take it.
Each value is checked against NumPy's.
"""

import os

# Threads are counted when NumPy and JAX are imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)
import math  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from benchmarks.harness import Table, asked  # noqa: E402
from benchmarks.native.__main__ import seconds  # noqa: E402

import retape  # noqa: E402
from retape import native  # noqa: E402

# pyright: basic


def squares(a, b):
    c = a @ b
    return np.sum(c * c)


def steps(a, b, n):
    for _ in range(n):
        a = a + 1e-3 * b
        b = b - 1e-3 * a
    return a.sum()


def runge_kutta(y, v, h, n):
    for _ in range(n):
        k1, l1 = v, -y
        k2, l2 = v + 0.5 * h * l1, -(y + 0.5 * h * k1)
        k3, l3 = v + 0.5 * h * l2, -(y + 0.5 * h * k2)
        k4, l4 = v + h * l3, -(y + h * k3)
        y = y + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        v = v + h / 6.0 * (l1 + 2.0 * l2 + 2.0 * l3 + l4)
    return (y * y).sum()


Row = tuple[str, Callable[..., Any], tuple[Any, ...], tuple[int, ...]]


def rows(quick: bool) -> Iterator[Row]:
    """A name, the function, its arguments, and what it is differentiated by."""
    draw = np.random.default_rng(0)
    for n in (64,) if quick else (64, 256):
        a, b = draw.normal(size=(2, n, n))
        yield f"`@` of {n} x {n}", squares, (a, b), (0, 1)
    sizes = (10, 20_000), (1_000, 1_000), (1_000, 20_000), (100_000, 20)
    for size, n in sizes[1:2] if quick else sizes:
        a, b = draw.normal(size=(2, size))
        name = f"{n:,} times `a = a + h * b`, `b = b - h * a`, {size:,} items"
        yield name, steps, (a, b, n), (0, 1)
    a, b = draw.normal(size=(2, 1_000))
    yield "200 Runge-Kutta steps, 1,000", runge_kutta, (a, b, 0.01, 200), (0, 1)


def in_jax(args: tuple[Any, ...]) -> float:
    """The seconds of JAX's gradient of the product."""
    import jax

    jax.config.update("jax_enable_x64", True)
    gradient = jax.jit(jax.grad(lambda a, b: ((a @ b) ** 2).sum(), (0, 1)))
    return seconds(lambda *given: jax.block_until_ready(gradient(*given)), args)


def main() -> None:
    """Print the table."""
    quick = asked(__doc__).quick
    table = Table("", "NumPy s", "ours s", "gradient s", "/ ours", "JAX gradient s")
    for name, f, args, by in rows(quick):
        ours = native.function(f)
        gradient = native.grad(f, by, plan=retape.logarithmic(stage=10**9))
        assert math.isclose(ours(*args), f(*args), rel_tol=1e-9)
        plain, primal, reverse = (seconds(g, args) for g in (f, ours, gradient))
        jax = in_jax(args) if f is squares else None
        table.row(name, plain, primal, reverse, reverse / primal, jax)


if __name__ == "__main__":
    main()

"""`python -m benchmarks.native.products`: products of matrices, and their neighbours.

Seconds of the processor, on one thread: the primal and the gradient of the sum of
squares of a product, with `@` and with loops written out; NumPy's primal; JAX's
gradient. Then a step of a perceptron of two layers, and `a + h * b` on whole arrays.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
)

# Threads are counted when NumPy is imported.
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from benchmarks.harness import Table, least  # noqa: E402

from retape import native  # noqa: E402


def squares(a, b):  # type: ignore[no-untyped-def]
    c = a @ b
    return np.sum(c * c)


def squares_by_loops(a, b):  # type: ignore[no-untyped-def]
    c = np.zeros((a.shape[0], b.shape[1]))
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = 0.0
            for k in range(b.shape[0]):
                total += a[i, k] * b[k, j]
            c[i, j] = total
    return np.sum(c * c)


def perceptron(w1, b1, w2, b2, x, y):  # type: ignore[no-untyped-def]
    """The mean square error of a network of two layers."""
    z = x @ w1
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            z[i, j] += b1[j]
    o = np.tanh(z) @ w2
    for i in range(o.shape[0]):
        for j in range(o.shape[1]):
            o[i, j] += b2[j] - y[i, j]
    return np.sum(o * o) / o.shape[0]


def steps(a, b, n):  # type: ignore[no-untyped-def]
    for _ in range(n):
        a = a + 1e-3 * b
        b = b - 1e-3 * a
    return a.sum()


def seconds(f: Callable[..., Any], *args: Any) -> float:
    """The least time of nine runs."""
    return least(lambda: f(*args), 9)


def in_jax(f: Callable[..., Any], by: tuple[int, ...]) -> Callable[..., Any]:
    """JAX's gradient, compiled."""
    import jax

    jax.config.update("jax_enable_x64", True)
    gradient = jax.jit(jax.grad(f, by))
    return lambda *args: jax.block_until_ready(gradient(*args))


def main() -> None:
    """Print the table."""
    generator = np.random.default_rng(0)
    table = Table("", "ours s", "NumPy s", "gradient s", "JAX gradient s")
    for n in (64, 256):
        a, b = generator.normal(size=(2, n, n))
        theirs = seconds(in_jax(squares, (0, 1)), a, b)
        for f in (squares, squares_by_loops):
            ours = seconds(native.function(f), a, b)
            gradient = seconds(native.grad(f, (0, 1)), a, b)
            table.row(
                f"{f.__name__} {n}", ours, seconds(squares, a, b), gradient, theirs
            )
    shapes = [(32, 64), (64,), (64, 8), (8,), (64, 32), (64, 8)]
    given = [generator.normal(size=shape) for shape in shapes]

    def network(w1, b1, w2, b2, x, y):  # type: ignore[no-untyped-def]
        import jax.numpy as jnp

        o = jnp.tanh(x @ w1 + b1) @ w2 + b2 - y
        return jnp.sum(o * o) / o.shape[0]

    by = (0, 1, 2, 3)
    times = [seconds(f, *given) for f in (native.function(perceptron), perceptron)]
    gradient = seconds(native.grad(perceptron, by), *given)
    table.row("perceptron", *times, gradient, seconds(in_jax(network, by), *given))
    a, b = generator.normal(size=(2, 1_000))
    times = [seconds(f, a, b, 1_000) for f in (native.function(steps), steps)]
    table.row(
        "a + h * b, 1,000",
        *times,
        seconds(native.grad(steps, (0, 1)), a, b, 1_000),
        None,
    )


if __name__ == "__main__":
    main()

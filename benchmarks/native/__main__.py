"""Ten Python functions, compiled: `python -m benchmarks.native [--quick] [NAME ...]`.

For each: seconds of the processor for the primal as CPython runs it, as Numba compiles
it (if it is installed), and as we do; for our gradient, and JAX's where it has one; and
the bytes that a gradient takes as the run gets 1,000 times as long: what our runtime
took from the system, and what JAX's compiler says. Each value is checked against
CPython's. `--quick` divides the lengths by ten.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.harness import Table, asked, least
from benchmarks.native import functions as ten
from benchmarks.native.rivals import jax_gradient, numba_version

from retape import native
from retape.native import Derivative

_BODIES = ten.SMALL[ten.n_body][0][:3]
_CELL = ten.SMALL[ten.rnn_cell][0][:3]


def _waves(n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.sin(np.arange(float(n))), np.cos(np.arange(float(n)))


# Of each function: arguments for a length, the length, what it is differentiated by.
ROWS: list[tuple[Callable[..., Any], Callable[[int], tuple], int, tuple[int, ...]]] = [
    (ten.newton, lambda n: (2.0, 1e-12 + 0 * n), 1, (0,)),
    (ten.n_body, lambda n: (*_BODIES, n), 20_000, (0, 1, 2)),
    (ten.pendulum, lambda n: (1.0, 0.5, n), 1_000_000, (0, 1)),
    (ten.logistic_map, lambda n: (0.3, 3.5, n), 1_000_000, (0, 1)),
    (ten.adaptive_runge_kutta, lambda n: (1.5, 2.0, n / 100, 1e-5), 3_000, (0, 1)),
    (ten.ray_through_lenses, lambda n: (0.01, 0.001, n), 100_000, (0, 1)),
    (ten.soft_alignment, lambda n: (*_waves(n), 0.5), 300, (0, 1)),
    (ten.recursive_quadrature, lambda n: (0.7, 1e-3 / n**2), 1_000, (0,)),
    (ten.adaptive_grid, lambda n: (np.arange(float(n), 0, -1), 53, 3.0), 1_000, (0,)),
    (ten.rnn_cell, lambda n: (*_CELL, n), 20_000, (0, 1)),
]


COLUMNS = (
    "function", "n", "CPython s", "Numba s", "ours s", "/ Numba", "gradient s",
    "/ primal", "MB, n/1000 → n", "JAX gradient s", "JAX MB, n/1000 → n",
)  # fmt: skip


def in_jax(f: Callable[..., Any], short: tuple, args: tuple) -> tuple[Any, Any]:
    """Seconds and MB of JAX's gradient, where there is one."""
    small, rival = jax_gradient(f, short), jax_gradient(f, args)
    if rival is None or small is None:
        return None, None
    return seconds(rival[0], ()), f"{small[1] / 1e6:.2f} → {rival[1] / 1e6:.2f}"


def seconds(f: Callable[..., Any], args: tuple, runs: int = 3) -> float:
    """The least time of the processor of some runs."""
    return least(lambda: f(*args), runs)


def mapped(gradient: Derivative, args: tuple) -> int:
    """The bytes that a gradient took from the system, at most."""
    gradient(*args)
    (made,) = gradient._made.values()
    runtime: Any = made.engine
    return runtime.native.measured().mapped


def timed(f: Callable[..., Any] | None, args: tuple, value: float) -> float | None:
    """The seconds of a compiled primal; nothing where there is none."""
    if f is None:
        return None
    try:
        found = f(*args)
    except Exception as error:  # noqa: BLE001 - Numba refuses by many kinds
        print(f"<!-- refused: {str(error).splitlines()[0]} -->")
        return None
    assert math.isclose(found, value, rel_tol=1e-9)
    return seconds(f, args)


def row(f: Any, make: Any, n: int, by: tuple[int, ...]) -> list[Any]:
    """One line of the table."""
    args, short = make(n), make(max(1, n // 1_000))
    value = f(*args)
    primal, theirs = (
        timed(g, args, value) for g in (native.function(f), numba_version(f))
    )
    assert primal is not None
    gradient = native.grad(f, by)
    found = [mapped(gradient, each) for each in (short, args)]  # peaks: the less first
    reverse = seconds(gradient, args)
    cells: list[Any] = [f.__name__, f"{n:,}", seconds(f, args, 1), theirs, primal]
    cells += [primal / theirs if theirs else None, reverse, reverse / max(primal, 1e-9)]
    cells.append(" → ".join(f"{each / 1e6:.2f}" for each in found))
    return [*cells, *in_jax(f, short, args)]


def main() -> None:
    """Print the table."""
    given = asked(__doc__, [f.__name__ for f, *_ in ROWS])
    table = Table(*COLUMNS)
    for f, make, n, by in ROWS:
        if f.__name__ in given.names:
            table.row(*row(f, make, max(1, n // 10) if given.quick else n, by))


if __name__ == "__main__":
    main()

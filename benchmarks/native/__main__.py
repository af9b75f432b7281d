"""`python -m benchmarks.native`: ten Python functions, compiled.

For each: seconds of the processor for the primal as CPython runs it, as plain C
(`gcc -O2`), as Numba compiles it (if it is installed), and as we do; for our gradient,
and JAX's where it has one; and the bytes that a gradient takes as the run gets 1,000
times as long: what our runtime took from the system, and what JAX's compiler says. Each
value is checked against CPython's. `--quick` divides the lengths by ten.

PyTorch's gradient is taken of a shorter run, in a process of its own, and its seconds
and bytes multiplied: its graph grows with the run, and would not fit.
"""

import argparse
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.harness import Table, in_a_process, least
from benchmarks.native import functions as ten
from benchmarks.native.rivals import InC, jax_gradient, numba_version

from retape import native
from retape.native import Derivative


def _waves(n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.sin(np.arange(float(n))), np.cos(np.arange(float(n)))


_BODIES = ten.SMALL[ten.n_body][0][:3]
_CELL = ten.SMALL[ten.rnn_cell][0][:3]

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


# By how much n is less in PyTorch's runs, and the work with it.
SHORTER = {
    ten.n_body: (10, 10),
    ten.pendulum: (100, 100),
    ten.logistic_map: (100, 100),
    ten.adaptive_runge_kutta: (10, 10),
    ten.ray_through_lenses: (10, 10),
    ten.soft_alignment: (5, 25),
}


def torch_gradient(f: Callable[..., Any], n: int) -> tuple[float, float]:
    """Seconds and bytes of PyTorch's gradient, from a shorter run."""
    less, times = SHORTER.get(f, (1, 1))
    words = f.__name__, str(max(1, n // less))
    found = in_a_process("benchmarks.native.in_torch", *words)
    (args,) = (row[1](max(1, n // less)) for row in ROWS if row[0] is f)
    assert math.isclose(found["value"], f(*args), rel_tol=1e-9)
    return times * found["seconds"], times * found["bytes"]


def seconds(f: Callable[..., Any], args: tuple, runs: int = 3) -> float:
    """The least time of the processor of some runs."""
    return least(lambda: f(*args), runs)


def mapped(gradient: Derivative, args: tuple) -> int:
    """The bytes that a gradient took from the system, at most."""
    gradient(*args)
    (made,) = gradient._made.values()
    runtime: Any = made.engine
    return runtime.native.call("census").u


def timed(f: Callable[..., Any] | None, args: tuple, value: float) -> float | None:
    """The seconds of a rival that gives the value; nothing where there is none."""
    if f is None:
        return None
    try:
        found = f(*args)
    except Exception as error:  # noqa: BLE001 - Numba refuses by many kinds
        print(f"<!-- refused: {str(error).splitlines()[0]} -->")
        return None
    assert math.isclose(found, value, rel_tol=1e-9)
    return seconds(f, args)


def row(f: Any, arguments: Any, n: int, by: tuple[int, ...], c: InC) -> list[Any]:
    """One line of the table."""
    args, short = arguments(n), arguments(max(1, n // 1_000))
    value = f(*args)
    primal = timed(native.function(f), args, value)
    plain, theirs = (
        timed(c.version(f), args, value),
        timed(numba_version(f), args, value),
    )
    gradient = native.grad(f, by)
    found = [mapped(gradient, each) for each in (short, args)]  # peaks: the less first
    reverse = seconds(gradient, args)
    assert primal is not None
    cells: list[Any] = [f.__name__, f"{n:,}", seconds(f, args, 1), plain]
    cells += [theirs, primal, primal / theirs if theirs else None]
    cells += [reverse, reverse / max(primal, 1e-9)]
    cells.append(" → ".join(f"{each / 1e6:.2f}" for each in found))
    in_torch = torch_gradient(f, n)
    theirs_in_torch = [in_torch[0], in_torch[1] / 1e6]
    rival, small = jax_gradient(f, args), jax_gradient(f, short)
    if rival is None or small is None:
        return [*cells, None, None, *theirs_in_torch]
    rival[0]()
    cells.append(seconds(rival[0], ()))
    return [*cells, f"{small[1] / 1e6:.2f} → {rival[1] / 1e6:.2f}", *theirs_in_torch]


COLUMNS = (
    "function",
    "n",
    "CPython s",
    "C s",
    "Numba s",
    "ours s",
    "/ Numba",
    "gradient s",
    "/ primal",
    "MB, n/1000 → n",
    "JAX gradient s",
    "JAX MB",
    "PyTorch gradient s",
    "PyTorch MB",
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="lengths divided by ten")
    quick = parser.parse_args().quick
    table, c = Table(*COLUMNS), InC()
    for f, arguments, n, by in ROWS:
        length = max(1, n // 10) if quick else n
        table.row(*row(f, arguments, length, by, c))


if __name__ == "__main__":
    main()

"""`python -m benchmarks.native`: ten Python functions, compiled.

For each: seconds of the processor for the primal as CPython runs it, as Numba compiles
it (if it is installed), and as we do; for our gradient; and the bytes that our runtime
took from the system for a gradient, as the run gets 1,000 times as long. Each compiled
value is checked against CPython's. `--quick` divides the lengths by ten.
"""

import argparse
import math
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.native import functions as ten

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


def seconds(f: Callable[..., Any], args: tuple, runs: int = 3) -> float:
    """The least time of the processor of some runs."""
    times: list[float] = []
    for _ in range(runs):
        begin = time.process_time()
        f(*args)
        times.append(time.process_time() - begin)
    return min(times)


def numba_version(f: Callable[..., Any]) -> Callable[..., Any] | None:
    """The function and those that it calls, compiled by Numba."""
    try:
        import numba
    except ImportError:
        return None
    names = dict(vars(ten))
    for name in ("gravity", "simpson"):
        names[name] = numba.njit(getattr(ten, name))
    copy = types.FunctionType(f.__code__, names, f.__name__, f.__defaults__)
    return numba.njit(copy)


def mapped(gradient: Derivative, args: tuple) -> int:
    """The bytes that a gradient took from the system, at most."""
    gradient(*args)
    (made,) = gradient._made.values()
    runtime: Any = made.engine
    return runtime.native.call("census").u


def row(f: Any, arguments: Any, n: int, by: tuple[int, ...]) -> list[str]:
    """One line of the table."""
    args = arguments(n)
    ours, gradient = native.function(f), native.grad(f, by)
    assert math.isclose(ours(*args), f(*args), rel_tol=1e-9)
    gradient(*args)
    primal, reverse = seconds(ours, args), seconds(gradient, args)
    theirs = numba_version(f)
    cells = [f.__name__, str(n), f"{seconds(f, args, 1):.4f}"]
    if theirs is not None:
        theirs(*args)
        cells.append(f"{seconds(theirs, args):.4f}")
    else:
        cells.append("")
    short = native.grad(f, by)
    small = mapped(short, arguments(max(1, n // 1_000)))
    large = mapped(native.grad(f, by), args)
    cells += [f"{primal:.4f}", f"{reverse:.4f}", f"{reverse / max(primal, 1e-9):.1f}"]
    return [*cells, f"{small / 1e6:.2f}", f"{large / 1e6:.2f}"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="lengths divided by ten")
    quick = parser.parse_args().quick
    print(
        "| function | n | CPython s | Numba s | ours s | gradient s | ratio | ", end=""
    )
    print("MB at n/1000 | MB at n |\n|---|---|---|---|---|---|---|---|---|")
    for f, arguments, n, by in ROWS:
        length = max(1, n // 10) if quick else n
        print("| " + " | ".join(row(f, arguments, length, by)) + " |", flush=True)


if __name__ == "__main__":
    main()

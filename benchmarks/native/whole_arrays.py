"""`python -m benchmarks.native.whole_arrays`: expressions on whole arrays.

Seconds of the processor: as NumPy runs the function, as we do, and our gradient in one
stage; of the first one also plain C with `-O3`, in place. Each value is checked against
NumPy's.
"""

import ctypes
import math
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.harness import Table
from benchmarks.native.products import seconds, steps

import retape
from retape import native

C = """
double steps(double *a, double *b, long n, long steps) {
  double sum = 0.0;
  for (long k = 0; k < steps; k++) {
    for (long i = 0; i < n; i++) a[i] = a[i] + 1e-3 * b[i];
    for (long i = 0; i < n; i++) b[i] = b[i] - 1e-3 * a[i];
  }
  for (long i = 0; i < n; i++) sum += a[i];
  return sum;
}
"""


def euler(x, h, n):  # type: ignore[no-untyped-def]
    for _ in range(n):
        x = x + h * (np.sin(x) - 0.5 * x)
    return np.sum(x)


def runge_kutta(y, v, h, n):  # type: ignore[no-untyped-def]
    for _ in range(n):
        k1, l1 = v, -y
        k2, l2 = v + 0.5 * h * l1, -(y + 0.5 * h * k1)
        k3, l3 = v + 0.5 * h * l2, -(y + 0.5 * h * k2)
        k4, l4 = v + h * l3, -(y + h * k3)
        y = y + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        v = v + h / 6.0 * (l1 + 2.0 * l2 + 2.0 * l3 + l4)
    return (y * y).sum()


def maps(x, r, n):  # type: ignore[no-untyped-def]
    for _ in range(n):
        x = r * x * (1.0 - x)
    return x.sum()


def soft(a, b, n):  # type: ignore[no-untyped-def]
    s = 0.0
    for _ in range(n):
        c = np.exp(a) / (1.0 + np.exp(b))
        s += np.sum(c * c)
        a = a - 1e-3 * c
    return s


def _rows() -> list[tuple[str, Callable[..., Any], tuple, tuple[int, ...]]]:
    generator = np.random.default_rng(0)
    found: list[tuple[str, Callable[..., Any], tuple, tuple[int, ...]]] = []
    for size, n in ((10, 20_000), (1_000, 1_000), (1_000, 20_000), (100_000, 20)):
        a, b = generator.normal(size=(2, size))
        name = f"{n:,} times `a = a + h * b`, `b = b - h * a`, {size:,} items"
        found.append((name, steps, (a, b, n), (0, 1)))
    a, b = generator.normal(size=(2, 1_000))
    x = generator.uniform(size=1_000)
    return [
        *found,
        ("200 Euler steps with a sine, 1,000 items", euler, (a, 0.01, 200), (0,)),
        ("200 Runge-Kutta steps, 1,000", runge_kutta, (a, b, 0.01, 200), (0, 1)),
        ("500 times the logistic map, 1,000", maps, (x, 3.2, 500), (0, 1)),
        ("100 times exponentials and quotients, 1,000", soft, (a, b, 100), (0, 1)),
    ]


def _in_c(a: np.ndarray, b: np.ndarray, n: int) -> float:
    """The seconds of C."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "steps.c"), f"{folder}/steps.so"
        source.write_text(C)
        words = "gcc -O3 -shared -fPIC -o".split()
        subprocess.run([*words, made, str(source)], check=True)
        library = ctypes.CDLL(made)
    library.steps.restype = ctypes.c_double
    rows = [each.copy() for each in (a, b)]
    places = [row.ctypes.data_as(ctypes.c_void_p) for row in rows]

    def run(*_: Any) -> None:
        library.steps(*places, ctypes.c_long(len(a)), ctypes.c_long(n))

    return seconds(run)


def main() -> None:
    """Print the table."""
    table = Table("", "C s", "NumPy s", "ours s", "/ C", "gradient s", "/ ours")
    for name, f, args, by in _rows():
        ours = native.function(f)
        gradient = native.grad(f, by, plan=retape.logarithmic(stage=10**9))
        assert math.isclose(ours(*args), f(*args), rel_tol=1e-9)
        c = _in_c(*args) if f is steps else None
        plain, primal, reverse = (seconds(g, *args) for g in (f, ours, gradient))
        over = None if c is None else primal / c
        table.row(name, c, plain, primal, over, reverse, reverse / primal)


if __name__ == "__main__":
    main()

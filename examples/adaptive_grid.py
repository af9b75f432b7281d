"""The adaptive-grid example of the paper (Figs. 8 and 28), and what its gradient costs.

A loop of `l` iterations, each of which runs an inner loop whose number of iterations
varies irregularly between 1 and `l`: the structure of a simulation that refines its
time step where it must. Both loops are plain `jax.lax.while_loop`s, which `jax.grad`
refuses to reverse.

The inner iteration rotates a vector. A rotation keeps the length, so the value of the
program is half the squared length of `x`, and its gradient is `x` itself, whatever the
number of iterations: every figure printed here can be checked against that.

    python examples/adaptive_grid.py [--l 53 101 ...] [--n 1000] [--out out]

Beside Retape's gradient stands the one that stores everything. No tool takes that of
the nested loops, so they are flattened by hand into one `scan`, whose number of steps
has been counted beforehand.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import retape
import retape.jax

LENGTHS = (53, 101, 211, 401, 809, 1601, 3203)
PHI = 3.0
TOLERANCE = 1e-6


# The program ------------------------------------------------------------------


def ilog2(v: Any) -> Any:
    """The exponent of the power of two at or below `v`; exact, which log(v) is not."""
    return jnp.frexp(v)[1] - 1


def inner_length(i: Any, l: Any) -> Any:  # noqa: E741 - the paper's name
    """How many inner iterations the outer iteration `i` has: a power of two."""
    scrambled = jnp.mod(1013.0 * jnp.floor(3.0**PHI) * i, l)
    return jnp.ldexp(1.0, ilog2(l) - ilog2(1 + scrambled))


def cos_sin(angle: Any) -> Any:
    return jnp.cos(angle), jnp.sin(angle)


def rotate_pairs(angle: Any, x: Any, turn: Callable[[Any], Any]) -> Any:
    """Rotate each pair (x1, x2), (x3, x4), ... by the angle."""
    c, s = turn(angle)
    even = x.shape[0] // 2 * 2
    a, b = x[0:even:2], x[1:even:2]
    turned = jnp.stack([c * a - s * b, s * a + c * b], axis=1).reshape(even)
    return jnp.concatenate([turned, x[even:]])


def update(x: Any, turn: Callable[[Any], Any] = cos_sin) -> Any:
    """One inner iteration: two rotations by angles that depend on the length of x."""
    length = jnp.sqrt(jnp.sum(x * x))
    x = rotate_pairs(1.2 * length, x, turn)
    rest = rotate_pairs(1.4 * length, x[1:], turn)
    return jnp.concatenate([x[:1], rest])


def program(x: Any, l: Any) -> Any:  # noqa: E741
    """Fig. 8: nested loops, the number of iterations unknown until they have run."""

    def outer(state: Any) -> Any:
        i, x = state
        last = inner_length(i, l)

        def inner(state: Any) -> Any:
            j, x = state
            return j + 1, update(x)

        _, x = lax.while_loop(lambda s: s[0] <= last, inner, (1.0, x))
        return i + 1, x

    _, x = lax.while_loop(lambda s: s[0] <= l, outer, (1.0, x))
    return jnp.sum(x * x) / 2


# The same by storing everything -----------------------------------------------


def inner_iterations(l: int) -> int:  # noqa: E741
    """How many inner iterations there are in all."""
    return int(jnp.sum(inner_length(jnp.arange(1.0, l + 1), float(l))))


def flattened(steps: int, x: Any, l: Any, *, branch: bool) -> Any:  # noqa: E741
    """The program as one loop of a known number of steps.

    XLA's CPU compiler evaluates `cos(angle)` once for each of the n elements that it is
    multiplied with, unless it stands inside a branch (`branch`). Retape puts it there
    by itself; both forms are measured, so that the gain is not counted as Retape's.
    """

    def held(angle: Any) -> Any:
        return lax.cond(l > 0, cos_sin, lambda a: (a, a + 1), angle)

    def step(state: Any, _: None) -> tuple[Any, None]:
        i, j, last, x = state
        x = update(x, held if branch else cos_sin)
        over = j + 1 > last
        i2 = jnp.where(over, i + 1, i)
        last2 = jnp.where(over, inner_length(i2, l), last)
        return (i2, jnp.where(over, 1.0, j + 1), last2, x), None

    start = (jnp.ones(()), jnp.ones(()), inner_length(1.0, l), x)
    (_, _, _, x), _ = lax.scan(step, start, length=steps)
    return jnp.sum(x * x) / 2


# Measuring --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """One gradient, measured."""

    l: int  # noqa: E741
    method: str
    seconds: float
    nbytes: int
    value: float
    gradient: np.ndarray
    report: Any = None
    """Steps, advances and snapshots, counted by a further run."""


PLANS = {
    "logarithmic()": retape.logarithmic(),
    "fixed_space(snapshots=20)": retape.fixed_space(snapshots=20),
    'within("6 MB")': retape.within("6 MB"),
}
NAMES = {name.partition("(")[0]: name for name in PLANS}
STORED = "store everything"
HELD = "store everything, branch"


@functools.cache
def compiled_plan(plan: retape.Plan, n: int) -> Any:
    """Retape's gradient, compiled once for all `l`: the trip counts are data."""
    both = retape.jax.value_and_grad(program, plan=plan)
    return jax.jit(both).lower(start(n), 1.0).compile()


def compiled_store(steps: int, n: int, branch: bool) -> Any:
    """JAX's gradient of the flattened program, for one number of steps."""
    both = jax.value_and_grad(functools.partial(flattened, steps, branch=branch))
    return jax.jit(both).lower(start(n), 1.0).compile()


def start(n: int) -> Any:
    """x = (n, n-1, ..., 1)."""
    return jnp.arange(float(n), 0.0, -1.0)


def counted(l: int, plan: retape.Plan, n: int) -> Any:  # noqa: E741
    """What the sweep of one plan did."""
    return retape.jax.measure(program, start(n), float(l), plan=plan).report


def timed(l: int, method: str, gradient: Any, n: int) -> Row:  # noqa: E741
    """Run a compiled gradient, and time the fastest of three further runs."""
    x = start(n)
    value, found = jax.block_until_ready(gradient(x, float(l)))
    seconds = math.inf
    for _ in range(3):
        began = time.perf_counter()
        jax.block_until_ready(gradient(x, float(l)))
        seconds = min(seconds, time.perf_counter() - began)
    nbytes = gradient.memory_analysis().temp_size_in_bytes
    return Row(l, method, seconds, nbytes, float(value), np.asarray(found))


def rows_of(l: int, n: int, plans: Sequence[str]) -> list[Row]:  # noqa: E741
    """Several ways to the gradient for one `l`; storing everything comes first."""
    steps = inner_iterations(l)
    rows = [
        timed(l, STORED, compiled_store(steps, n, False), n),
        timed(l, HELD, compiled_store(steps, n, True), n),
    ]
    for name in plans:
        plan = PLANS[name]
        row = timed(l, name, compiled_plan(plan, n), n)
        rows.append(dataclasses.replace(row, report=counted(l, plan, n)))
    return rows


# Reporting --------------------------------------------------------------------


def off(row: Row, other: np.ndarray) -> float:
    """Largest difference of two gradients, relative to the largest component."""
    return float(np.abs(row.gradient - other).max() / np.abs(other).max())


def value_off(row: Row, n: int) -> float:
    """Relative difference of the value from half the squared length of x."""
    expected = n * (n + 1) * (2 * n + 1) / 12
    return abs(row.value / expected - 1)


def counts(row: Row) -> str:
    """Steps, advances and snapshots; storing everything has none of these."""
    r = row.report
    if r is None:
        return f"{'':26}"
    return f"{r.length:7}{r.advances:9}{r.peak_snapshots:10}"


def table(rows: Sequence[Row], n: int) -> str:
    """The rows of one `l`, as text."""
    stored = rows[0]
    l, steps = stored.l, inner_iterations(stored.l)  # noqa: E741
    lines = [f"l = {l}: {steps} inner iterations, value {stored.value:.2f}"]
    lines.append(
        f"  {'':25}{'time':>10}{'ratio':>7}{'memory':>12}{'steps':>7}{'advances':>9}"
        f"{'snapshots':>10}{'value off':>10}{'off x':>7}{'off stored':>11}"
    )
    for row in rows:
        lines.append(
            f"  {row.method:25}{row.seconds * 1e3:7.1f} ms"
            f"{row.seconds / stored.seconds:7.2f}{row.nbytes / 1e6:9.3f} MB"
            f"{counts(row)}{value_off(row, n):10.0e}"
            f"{off(row, np.asarray(start(n))):7.0e}{off(row, stored.gradient):11.0e}"
        )
    return "\n".join(lines)


def bars(rows: Sequence[Row], title: str, of: Callable[[Row], float], unit: str) -> str:
    """A quantity against `l`, on a logarithmic scale, in characters."""
    least = min(map(of, rows))
    lines = [f"{title} (logarithmic scale)"]
    for method in dict.fromkeys(r.method for r in rows):
        lines.append(f"  {method}")
        for row in (r for r in rows if r.method == method):
            width = 1 + round(12 * math.log10(of(row) / least))
            lines.append(f"  {row.l:>6} {'#' * width} {of(row):.3g} {unit}")
    return "\n".join(lines)


def megabytes(row: Row) -> float:
    return row.nbytes / 1e6


def milliseconds(row: Row) -> float:
    return row.seconds * 1e3


STYLES = {
    STORED: ("#b03a2e", "store everything", 5.0, "-"),
    HELD: ("#641e16", "the same, in a branch", 1.8, "--"),
    "fixed_space(snapshots=20)": ("#148f77", "20 snapshots", 5.0, "-"),
    "logarithmic()": ("#1a5276", "logarithmic()", 1.8, "--"),
    'within("6 MB")': ("#7d3c98", 'within("6 MB")', 1.8, "-"),
}
"""Colour, words, width and dashes: of two lines in one place both are seen."""
LABEL_GAP = 0.085
"""Between two labels, as a part of the height of the axes."""


def label_lines(axis: Any, ends: dict[str, float]) -> None:
    """Name each line behind its end, where names do not lie on one another."""
    low, high = (math.log10(limit) for limit in axis.get_ylim())
    free = 0.0
    for method, end in sorted(ends.items(), key=lambda each: each[1]):
        place = max((math.log10(end) - low) / (high - low), free)
        colour, words, *_ = STYLES[method]
        axis.text(
            1.01, place, words, color=colour, transform=axis.transAxes, va="center"
        )
        free = place + LABEL_GAP


def draw(rows: Sequence[Row], n: int, out: Path) -> list[Path]:
    """The growth of memory and time with `l`, as a PNG and an SVG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "retape"})
    figure, axes = plt.subplots(2, 1, figsize=(6.8, 6.0), layout="constrained")
    titles = ("temporary memory, MB", "time, ms")
    there = {r.method for r in rows}
    for axis, of, title in zip(axes, (megabytes, milliseconds), titles, strict=True):
        ends: dict[str, float] = {}
        for method in (m for m in STYLES if m in there):
            colour, _, width, dashes = STYLES[method]
            mine = [r for r in rows if r.method == method]
            xs, ys = [r.l for r in mine], [of(r) for r in mine]
            alpha = 0.45 if width > 2 else 1.0
            axis.loglog(xs, ys, dashes, color=colour, lw=width, alpha=alpha)
            ends[method] = ys[-1]
        label_lines(axis, ends)
        axis.set_title(title, fontsize=10)
        axis.grid(True, which="major", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("l (outer iterations)")
    figure.suptitle(f"Gradient of the adaptive-grid example, n = {n}", fontsize=11)
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / "adaptive-grid.png", out / "adaptive-grid.svg"]
    figure.savefig(paths[0], dpi=150)
    figure.savefig(paths[1], metadata={"Date": None})
    plt.close(figure)
    return paths


def wrong(rows: Sequence[Row], n: int) -> list[str]:
    """Rows whose value or gradient is not the expected one."""
    x = np.asarray(start(n))
    return [
        f"l={r.l}, {r.method}"
        for r in rows
        if max(off(r, x), value_off(r, n)) > TOLERANCE
    ]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--l", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--plan", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--n", type=int, default=1000, help="length of x")
    parser.add_argument("--out", type=Path, default=Path("out"))
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    jax.config.update("jax_enable_x64", True)
    with tempfile.TemporaryDirectory() as cache:
        # The counting runs compile the same program for each l: once is enough.
        jax.config.update("jax_compilation_cache_dir", cache)
        return compare(options)


def compare(options: argparse.Namespace) -> int:
    """Measure, print and draw; returns the exit code."""
    rows: list[Row] = []
    for l in options.l:  # noqa: E741
        found = rows_of(l, options.n, [NAMES[p] for p in options.plan])
        print(table(found, options.n), end="\n\n", flush=True)
        rows += found
    print(bars(rows, "temporary memory", megabytes, "MB"), end="\n\n")
    print(bars(rows, "time", milliseconds, "ms"), end="\n\n")
    for path in draw(rows, options.n, options.out):
        print(f"drawn: {path}")
    bad = wrong(rows, options.n)
    for name in bad:
        print(f"not the expected gradient: {name}")
    if not bad:
        print(f"every value and gradient is the expected one to {TOLERANCE:.0e}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

"""Measuring: every candidate compiled once, then run in turn, round after round.

Times are medians over the rounds, and ratios are taken within a round, because these
machines are shared: what slows one candidate slows its neighbour. Memory is what the
compiler says that the program's temporaries take; it does not depend on the machine's
load.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate's figures."""

    name: str
    seconds: float
    ratio: float
    megabytes: float
    compile_seconds: float
    error: float


def compare(
    candidates: dict[str, Callable[..., Any]],
    args: Sequence[Any],
    *,
    base: str,
    rounds: int = 5,
    compiler_options: dict[str, Any] | None = None,
) -> list[Row]:
    """Compile all, run all in turn, compare results and times with those of `base`."""
    compiled, built = {}, {}
    for name, fun in candidates.items():
        began = time.perf_counter()
        lowered = jax.jit(fun).lower(*args)
        compiled[name] = lowered.compile(compiler_options=compiler_options)
        built[name] = time.perf_counter() - began
    results = {n: jax.block_until_ready(c(*args)) for n, c in compiled.items()}
    times: dict[str, list[float]] = {n: [] for n in compiled}
    for _ in range(rounds):
        for name, program in compiled.items():
            began = time.perf_counter()
            jax.block_until_ready(program(*args))
            times[name].append(time.perf_counter() - began)
    return [
        Row(
            name,
            statistics.median(times[name]),
            statistics.median(
                a / b for a, b in zip(times[name], times[base], strict=True)
            ),
            compiled[name].memory_analysis().temp_size_in_bytes / 1e6,
            built[name],
            difference(results[name], results[base]),
        )
        for name in compiled
    ]


def difference(a: Any, b: Any) -> float:
    """Largest relative difference of two results, by norm."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    found = 0.0
    for x, y in pairs:
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        off = float(np.linalg.norm(x - y) / (np.linalg.norm(y) or 1.0))
        # `max` would lose what is not a number.
        found = float(np.maximum(found, off))
    return found


def show(title: str, rows: Sequence[Row]) -> None:
    """Print a table."""
    width = max(len(r.name) for r in rows)
    print(f"\n{title}\n{'':{width}}      time   ratio  temp MB  compile s  difference")
    for r in rows:
        print(
            f"{r.name:{width}}  {1e3 * r.seconds:7.1f} ms  {r.ratio:5.2f}  "
            f"{r.megabytes:7.3f}  {r.compile_seconds:9.2f}  {r.error:10.1e}",
            flush=True,
        )

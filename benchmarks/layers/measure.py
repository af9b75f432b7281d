"""Every candidate compiled once, then run in turn; processor seconds, the least of all.

The machines are shared: processor seconds count only this process's work, and of
several rounds the least is the one that was disturbed least.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

sys.path[:0] = [str(Path(__file__).parents[1] / "jax")]

from _measure import Row, difference  # noqa: E402


def compare(
    candidates: dict[str, Callable[..., Any]],
    args: Sequence[Any],
    rounds: int,
    *,
    counted: bool = False,
) -> list[Row]:
    """Compile all and run all; results and times are compared with the first one's.

    With `counted` the operations of the compiled programs are printed, too. The
    compiler counts a loop's body once, so this is for programs without loops.
    """
    compiled, built, results = {}, {}, {}
    for name, fun in candidates.items():
        began = time.process_time()
        compiled[name] = jax.jit(fun).lower(*args).compile()
        built[name] = time.process_time() - began
        results[name] = jax.block_until_ready(compiled[name](*args))
        print(".", end="", file=sys.stderr, flush=True)
    if counted:
        show_work(compiled)
    times: dict[str, list[float]] = {n: [] for n in compiled}
    for _ in range(rounds):
        for name, program in compiled.items():
            began = time.process_time()
            jax.block_until_ready(program(*args))
            times[name].append(time.process_time() - began)
    base = next(iter(candidates))
    return [
        Row(
            name,
            min(times[name]),
            min(times[name]) / min(times[base]),
            compiled[name].memory_analysis().temp_size_in_bytes / 1e6,
            built[name],
            difference(results[name], results[base]),
        )
        for name in compiled
    ]


def show_work(compiled: dict[str, Any]) -> None:
    """Floating-point operations of each program, over those of the first."""
    flops = {name: c.cost_analysis()["flops"] for name, c in compiled.items()}
    once = next(iter(flops.values()))
    print("\noperations over the first one's:")
    for name, count in flops.items():
        print(f"{name:28} {count / once:.3f}", flush=True)

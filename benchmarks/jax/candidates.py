"""Candidates in JAX: compiled once, run in turn, and their results compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from benchmarks.harness import Clock, Table, Times, in_turn


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program for some arguments.

    Attributes:
        program: What is called.
        nbytes: Of its temporaries, as the compiler reports them: the machine's load is
            not in it.
        seconds: Of the processor, for tracing, lowering and compiling.
    """

    program: Any
    nbytes: int
    seconds: float

    def __call__(self, *args: Any) -> Any:
        """Call it, and wait."""
        return jax.block_until_ready(self.program(*args))


def compiled(fun: Callable[..., Any], *args: Any) -> Compiled:
    """A function, compiled for arguments like these."""
    began = time.process_time()
    program: Any = jax.jit(fun).lower(*args).compile()
    seconds = time.process_time() - began
    return Compiled(program, program.memory_analysis().temp_size_in_bytes, seconds)


def compare(
    title: str,
    candidates: dict[str, Callable[..., Any]],
    args: Sequence[Any],
    rounds: int = 5,
    clock: Clock = time.perf_counter,
) -> None:
    """Compile all, run all in turn, and print a row of each.

    Times and results are compared with the first one's.
    """
    made = {name: compiled(fun, *args) for name, fun in candidates.items()}
    results = {name: each(*args) for name, each in made.items()}
    times = timed(made, args, rounds, clock)
    base = next(iter(candidates))
    table = Table("", "ms", "ratio", "MB", "compile s", "difference", title=title)
    for name, each in made.items():
        figures = 1e3 * times[name].median, times[name].over(times[base])
        error = difference(results[name], results[base])
        table.row(name, *figures, each.nbytes / 1e6, each.seconds, f"{error:.0e}")


def timed(
    made: dict[str, Compiled],
    args: Sequence[Any],
    rounds: int,
    clock: Clock = time.perf_counter,
) -> dict[str, Times]:
    """The times of programs that are called with the same arguments."""
    calls = {name: lambda each=each: each(*args) for name, each in made.items()}
    return in_turn(calls, rounds, clock)


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

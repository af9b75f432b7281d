"""Norms of the cotangents along a reverse sweep, in a fixed number of rows.

After each step that was swept back the largest of the cotangents that it wrote is
taken, and a running maximum carried to the end of its stage. There it is written down.
A row stands for as many stages as it takes for all of them to fit, and holds the
largest of their steps, so that no peak is lost, however short:

    stages   0 1 2 3 4 5 6 7 8            1000 of them, 512 rows: two stages a row
    norms   [0 1][2 3][4 5][6 7][8]

What is not finite counts as infinity. Only cotangents of registers are looked at: those
of operands and of kept arrays are as large as the program, and would cost more than a
step.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from retape.driver._health import ROWS
from retape.engines.jaxpr.codegen._allocate import Layout
from retape.engines.jaxpr.control._numbers import over
from retape.engines.jaxpr.ir._ir import Label
from retape.engines.jaxpr.jaxprs._row_ops import put, row
from retape.engines.jaxpr.jaxprs._scalar_ops import chosen, where
from retape.engines.jaxpr.nest._resumable_nest import Ahead, Guard, Pass, State

NORMS, FIRST, PEAK = "norms", "first norm", "peak norm"
"""Keys in a sweep's state: a row for some stages, the norm after the first step that
has one, and the largest in the stage that is swept back."""


def begin_watch() -> State:
    """What the watch adds to the state of a sweep."""
    none = jnp.zeros((), np.float64)
    return {NORMS: jnp.zeros(ROWS, np.float64), FIRST: none, PEAK: none}


class WatchedPass:
    """A pass back that notes how large cotangents become.

    Args:
        going: The pass.
        layout: Of the program.
    """

    def __init__(self, going: Pass, layout: Layout) -> None:
        self.going = going
        self.backwards = going.backwards
        self._cotangents = frozenset(register_cotangents(layout))

    def changes(self, label: Label) -> set[Any]:
        changed = self.going.changes(label)
        return changed | {FIRST, PEAK} if changed & self._cotangents else changed

    def passes_over(self, label: Label) -> bool:
        return self.going.passes_over(label)

    def guard(self, lo: int, hi: int, state: State) -> Any:
        return self.going.guard(lo, hi, state)

    def paces(self, label: Label) -> dict[Any, Any]:
        return self.going.paces(label)

    def ahead(self, label: Label, here: int, count: int, state: State) -> Ahead:
        return self.going.ahead(label, here, count, state)

    def settled(self, label: Label, state: State, made: Any) -> State:
        return self.going.settled(label, state, made)

    def step(self, label: Label, state: State, guard: Guard) -> State:
        state = self.going.step(label, state, guard)
        keys = sorted(self.going.changes(label) & self._cotangents, key=str)
        if not keys:
            return state
        norm, ok = _largest_or_nan([state[k] for k in keys]), guard.ok
        first, peak = state[FIRST], state[PEAK]
        return state | {
            FIRST: chosen(ok, where(first == 0, norm, first), first),
            PEAK: chosen(ok, lax.max(peak, norm), peak),
        }


def watch_stage(state: State, wanted: Any, stages: Any) -> State:
    """Write down the largest norm in the stage before which the registers stand.

    Args:
        state: After the stage was swept back.
        wanted: Whether it was.
        stages: How many there are in all.
    """
    index = state["here"] // over(stages + (ROWS - 1), ROWS)
    norms, peak = state[NORMS], state[PEAK]
    # Where no stage was swept back, the maximum is that of nothing, or of a part of it.
    noted = lax.max(row(norms, index), _finite_or_infinity(peak))
    return state | {
        NORMS: put(norms, noted, index),
        PEAK: where(wanted, np.float64(0), peak),
    }


def register_cotangents(layout: Layout) -> list[Any]:
    """Keys of the registers' cotangents in the state of a sweep."""
    active = sorted(p for p in layout.active if p.kind == "register")
    return [layout.cotangent(p) for p in active]


def largest(arrays: list[Any]) -> Any:
    """The largest magnitude in some arrays; infinity if one is not finite."""
    return _finite_or_infinity(_largest_or_nan(arrays))


def _largest_or_nan(arrays: list[Any]) -> Any:
    # Of single operations, as in `jaxprs/_scalar_ops`: it is in the code of each block.
    norms = [
        lax.convert_element_type(
            lax.reduce_max(lax.abs(array), tuple(range(array.ndim))), np.float64
        )
        for array in map(jnp.asarray, arrays)
        if array.size
    ]
    return reduce(lax.max, norms, np.float64(0))


def _finite_or_infinity(norm: Any) -> Any:
    return where(lax.is_finite(norm), norm, np.float64(np.inf))

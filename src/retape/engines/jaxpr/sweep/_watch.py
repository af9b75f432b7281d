"""Norms of the cotangents along a reverse sweep, in a fixed number of rows.

After each stage that was swept back the largest entry of the registers' cotangents is
written down. A row stands for as many stages as it takes for all of them to fit, and
holds the largest of theirs, so that no peak is lost:

    stages   0 1 2 3 4 5 6 7 8            1000 of them, 512 rows: two stages a row
    norms   [0 1][2 3][4 5][6 7][8]

What is not finite counts as infinity. Cotangents of operands and of kept arrays are
left out: they are as large as the program, and would cost more than a step.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from retape.driver._health import ROWS
from retape.engines.jaxpr.codegen._allocate import Layout
from retape.engines.jaxpr.control._splits import INT, over
from retape.engines.jaxpr.jaxprs._row_ops import put, row
from retape.engines.jaxpr.nest._resumable_nest import State
from retape.engines.jaxpr.sweep._snapshots import once

KEY = "norms"


def begin_watch() -> State:
    """What the watch adds to the state of a sweep."""
    return {KEY: jnp.zeros(ROWS, np.float64)}


def watch_stage(layout: Layout, state: State, wanted: Any, stages: Any) -> State:
    """Write down the norm after the stage before which the registers stand.

    Args:
        layout: Of the program.
        state: After the stage was swept back.
        wanted: Whether it was.
        stages: How many there are in all.
    """
    index = state["here"] // over(stages + INT(ROWS - 1), INT(ROWS))

    def noted(_: Any, old: Any) -> list[Any]:
        (rows,) = old
        norm = largest([state[k] for k in register_cotangents(layout)])
        return [put(rows, jnp.maximum(row(rows, index), norm), index)]

    return once(wanted, state, [KEY], noted)


def register_cotangents(layout: Layout) -> list[Any]:
    """Keys of the registers' cotangents in the state of a sweep."""
    active = sorted(p for p in layout.active if p.kind == "register")
    return [layout.cotangent(p) for p in active]


def largest(arrays: list[Any]) -> Any:
    """The largest magnitude in some arrays; infinity if one is not finite."""
    norm = jnp.zeros((), np.float64)
    for array in arrays:
        if array.size:
            norm = jnp.maximum(norm, jnp.max(jnp.abs(array)).astype(np.float64))
    return jnp.where(jnp.isfinite(norm), norm, np.float64(np.inf))

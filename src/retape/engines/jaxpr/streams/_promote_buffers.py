"""Promote a buffer that a program fills row by row to a stream.

Before, the `ys`-by-hand of third-party code, a register of the loop:

    L0:  b = full[n, k] inf           moves rows <- b, i <- 0
    L1:  r = scatter rows i y         moves rows <- r, i <- i + 1     (a loop)

After, one array beside the capsules, of which a step writes a row:

    L0:                               moves rows <- b, i <- 0, at <- 0
    L1:  writes rows[at] = y          moves i <- i + 1, at <- min(i + 1, n)

It is right because running a step again writes the same row again, and nobody sees a
row before it is written. Both are proved, for each buffer, from these facts; where one
fails the buffer stays a register:

- It is assigned one number, perhaps with rows set that are known in advance, once,
  outside every loop. After that only rows of it are set.
- It may have many names, in loops inside loops, but is used only under that of its
  newest version (`streams/_buffer_versions`).
- The rows that are set in loops rise: no two writes meet in a row
  (`streams/_increasing_rows`). Which of them are set may depend on the data.
- Until the last loop that sets rows has ended nothing else reads it. After it, anything
  may.

A row outside the buffer is not written by a scatter that drops it, nor one that is set
only under a condition which fails; here that row is then written with what it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retape.engines.jaxpr.ir._ir import Label, Program, Var
from retape.engines.jaxpr.streams._buffer_versions import buffer_of
from retape.engines.jaxpr.streams._increasing_rows import FAR, Rising, RowOf, rows_of
from retape.engines.jaxpr.streams._initial_value import start_of
from retape.engines.jaxpr.streams._to_stream import (
    Opened,
    Promotion,
    Proved,
    RowCounters,
    View,
    in_bounds,
)


def promote_buffers(program: Program, constants: Sequence[Any] = ()) -> None:
    """Turn all buffers of which it can be proved into streams, in place.

    Args:
        program: The program.
        constants: The values of its last operands.
    """
    done: set[Var] = set()
    opens = Opened()
    counts: RowCounters = {}
    while True:
        view = View(program, opens, constants)
        seeds = [s for s in view.seeds() if s not in done]
        if not seeds:
            return
        for seed in seeds:
            done.add(seed)
            found = _proved(view, seed)
            if found is not None:
                Promotion(view, found, counts).make()
                # The rest is about a program that is no more.
                break


def _proved(view: View, seed: Var) -> Proved | None:
    """The buffer that a variable is a name of, if all is proved of it."""
    flow, growth = view.flow, view.growth
    buffer = buffer_of(flow, growth, seed)
    if buffer is None or seed.aval.shape[0] > FAR:
        return None
    where, _, source = buffer.birth
    start = start_of(source, growth[where.label], view.constants)
    if start is None:
        return None
    rows: dict[Label, list[RowOf]] = {}
    for label, visit in buffer.visits.items():
        found = rows_of(visit.sets, growth[label])
        if found is None:
            return None
        rows[label] = found
    begun = max((row + 1 for row, _ in start.rows), default=0)
    if not Rising(flow, growth, rows, begun).holds():
        return None
    for block in buffer.writers(flow):
        for row in rows[block.label]:
            # A row beyond the last one must not be the last one.
            if row.row.clamps and not in_bounds(view, block, row):
                return None
    return Proved(buffer, start, rows)

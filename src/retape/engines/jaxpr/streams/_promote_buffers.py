"""Promote a buffer that a program fills row by row to a stream.

Before, the `ys`-by-hand of third-party code, a register of the loop:

    L0:  b = full[n, k] inf           moves rows <- b, i <- 0
    L1:  r = scatter rows i y         moves rows <- r, i <- i + 1     (a loop)

After, one array beside the capsules, of which a step writes a row:

    L0:                               moves rows <- b, i <- 0
    L1:  writes rows[i] = y           moves i <- i + 1

It is right because nobody reads a row before the last one is written, and by then every
row holds what was written last; so steps that are run again write nothing more. On the
way back a step *takes* the cotangents of its rows, the last write first, so that what
was overwritten gets none. Rows may come in any order, again, or not at all. What has to
be proved, for each buffer, is this; where a fact fails the buffer stays a register:

- It is assigned one number, perhaps with rows set, once, outside every loop. After that
  only rows of it are set.
- It may have many names, in loops inside loops, but is used only under that of its
  newest version (`streams/_buffer_versions`).
- Until the last loop that sets rows has ended nothing else reads it. After it, anything
  may.

A row outside the buffer, where a scatter drops it, or one that is set only under a
condition which fails, has the number of no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retape.engines.jaxpr.ir._ir import Program, Var
from retape.engines.jaxpr.streams._buffer_versions import buffer_of, start_of
from retape.engines.jaxpr.streams._to_stream import (
    NumberedRow,
    Opened,
    Promotion,
    Proved,
    View,
)

FAR = 2**30
"""Rows beyond which their numbers, and one more, would not fit into 32 bits."""


def promote_buffers(program: Program, constants: Sequence[Any] = ()) -> None:
    """Turn all buffers of which it can be proved into streams, in place.

    Args:
        program: The program.
        constants: The values of its last operands.
    """
    done: set[Var] = set()
    opens = Opened()
    places: list[NumberedRow] = []
    while True:
        view = View(program, opens, constants)
        seeds = [s for s in view.seeds() if s not in done]
        if not seeds:
            return
        for seed in seeds:
            done.add(seed)
            found = _proved(view, seed)
            if found is not None:
                Promotion(view, found, places).make()
                # The rest is about a program that is no more.
                break


def _proved(view: View, seed: Var) -> Proved | None:
    """The buffer that a variable is a name of, if all is proved of it."""
    buffer = buffer_of(view.flow, view.made, seed)
    if buffer is None or seed.aval.shape[0] > FAR:
        return None
    where, _, source = buffer.birth
    start = start_of(source, view.made[where.label], view.constants)
    return None if start is None else Proved(buffer, start)

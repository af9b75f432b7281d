"""Streams that make room for their cotangents.

Rows that a program saves are read by what it ends with, and by nobody else: a step only
writes them. Once the last block has been swept back (`_ending`) the rows are of no more
use, and what the way back needs of the stream is its cotangent, which is as large. So
both have one place, which holds the rows before and the cotangent after:

    kept 3:   row row row row ...    until the last block has been swept back
              d   d   d   d   ...    from then on

Steps that are run again must leave it as it is: `Layout.turned` says which places these
are, and the truth at `WRITTEN` whether they hold cotangents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import lax

from ._absorb import only_left
from ._code import Code
from ._ir import Block, Label, Program, Var, blocks_of
from ._layout import Layout, Place
from ._numbers import where as select
from ._tape import TapedCode
from ._types import spread, varying, zeros_as

_FLOATS = ("float16", "bfloat16", "float32", "float64")


def turn(program: Program, layout: Layout, taped: Mapping[Label, TapedCode]) -> Layout:
    """The layout with every place that may hold a stream, then its cotangent."""
    *others, last = blocks_of(program.items)
    ending = taped[last.label]
    read = [ending.code.ins[i] for i in ending.active_ins if i < len(ending.code.ins)]
    fine = {
        layout.where[v]
        for v in read
        if layout.where[v].kind == "kept"
        and v not in program.outs
        and not _is_touched(v, ending.code)
        and any(w.stream is v for b in others for w in b.writes)
        and all(_only_writes(b, taped[b.label].code, v) for b in others)
    }
    return replace(layout, turned=frozenset(fine))


def unturned(layout: Layout) -> Layout:
    """The layout with places of their own for all cotangents."""
    return replace(layout, turned=frozenset[Place]())


def behind(cotangent: Any, results: Sequence[Any]) -> Any:
    """The cotangent, not to be made before the results of the same block.

    They are made of the stream, and where a cotangent is not (a loss that is linear),
    XLA is free to make it first. Then both are there at a time, and a copy of either.
    So it is chosen by truths that follow from the results, and that XLA cannot know.
    """
    for result in results:
        fits = varying(jax.typeof(result)) <= varying(jax.typeof(cotangent))
        if not fits or not result.size or str(result.dtype) not in _FLOATS:
            continue
        flat = lax.reshape(result, (result.size,))
        number = lax.squeeze(lax.slice(flat, (0,), (1,)), (0,))
        bits = lax.bitcast_convert_type(number, f"uint{8 * result.dtype.itemsize}")
        one, two = (np.asarray(n, bits.dtype) for n in (1, 2))
        truth = lax.lt(lax.bitwise_and(bits, one), two)
        truth = spread(truth, varying(jax.typeof(cotangent)))
        cotangent = select(truth, cotangent, zeros_as(cotangent))
    return cotangent


def _is_touched(var: Var, code: Code) -> bool:
    """Whether a block assigns a value, or writes rows of it, or reads a row."""
    accesses = (*code.reads, *code.writes)
    return var in code.outs or any(a.stream is var for a in accesses)


def _only_writes(block: Block, code: Code, var: Var) -> bool:
    """Whether all that a block does with a stream is to write rows of it.

    It may read a row to write that very row again.
    """
    if var in code.outs or (var in code.ins and var not in code.filled):
        return False
    return not any(r.stream is var for r in code.reads) or only_left(block, {var})

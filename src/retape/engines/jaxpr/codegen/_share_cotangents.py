"""Streams that make room for their cotangents.

Rows that a program saves are read by what it ends with, and by nobody else: a step only
writes them. Once the last block has been swept back (`sweep/_last_block`) the rows are
of no more use, and what the way back needs of the stream is its cotangent, which is as
large. So both have one place, which holds the rows before and the cotangent after:

    kept 3:   row row row row ...    until the last block has been swept back
              d   d   d   d   ...    from then on

Steps that are run again must leave it as it is: `Layout.turned` says which places these
are, and the truth at `WRITTEN` whether they hold cotangents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from retape.engines.jaxpr.codegen._allocate import Layout, Location
from retape.engines.jaxpr.codegen._block_function import Code
from retape.engines.jaxpr.codegen._linearize import TapedCode
from retape.engines.jaxpr.ir._ir import Label, Program, Var, blocks_of


def share_cotangents(
    program: Program, layout: Layout, taped: Mapping[Label, TapedCode]
) -> Layout:
    """The layout with every place that may hold a stream, then its cotangent."""
    *others, last = blocks_of(program.items)
    ending = taped[last.label]
    read = [ending.code.ins[i] for i in ending.active_ins if i < len(ending.code.ins)]
    fine = {
        layout.where[v]
        for v in read
        if layout.where[v].kind == "resident"
        and v not in program.outs
        and not _is_touched(v, ending.code)
        and any(w.stream is v for b in others for w in b.writes)
        and all(_only_writes(taped[b.label].code, v) for b in others)
    }
    return replace(layout, turned=frozenset(fine))


def without_sharing(layout: Layout) -> Layout:
    """The layout with places of their own for all cotangents."""
    return replace(layout, turned=frozenset[Location]())


def _is_touched(var: Var, code: Code) -> bool:
    """Tell whether a block assigns a value, or writes rows of it, or reads a row."""
    accesses = (*code.reads, *code.writes)
    return var in code.outs or any(a.stream is var for a in accesses)


def _only_writes(code: Code, var: Var) -> bool:
    """Tell whether all that a block does with a stream is to write rows of it."""
    if var in code.outs or (var in code.ins and var not in code.filled):
        return False
    return not any(r.stream is var for r in code.reads)

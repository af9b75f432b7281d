"""The checkers of code generation: locations, block functions, derivatives, sharing.

Each looks at the output of one pass, with definitions of its own where the pass has
some, so that one mistake is not made in both. A broken rule is a fault of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from retape.engines.jaxpr.codegen._allocate import Layout, Location
from retape.engines.jaxpr.codegen._block_function import Code
from retape.engines.jaxpr.codegen._linearize import TapedCode
from retape.engines.jaxpr.ir._flow_graph import Liveness
from retape.engines.jaxpr.ir._ir import (
    Atom,
    Block,
    Label,
    Program,
    Var,
    Write,
    blocks_of,
)
from retape.engines.jaxpr.jaxprs._check import value_types


def check_layout(program: Program, layout: Layout, live: Liveness) -> None:
    """Nothing is live unassigned; variables live together have places of their own."""
    first = next(blocks_of(program.items))
    assert not live.entry[first.label], "a variable is read before it is assigned"
    for alive in (*live.entry.values(), *live.exit.values()):
        places = [layout.where[v] for v in alive]
        assert len(set(places)) == len(places), "two live variables in one place"
    for block in blocks_of(program.items):
        streams = [w.stream for w in block.writes if w.at is None]
        assert all(layout.where[s].kind == "resident" for s in streams), (
            "a loop in a step writes a stream that snapshots hold"
        )
    for var, place in layout.where.items():
        aval = layout.avals[place]
        assert (aval.shape, aval.dtype) == (var.aval.shape, var.aval.dtype)
        assert place in layout.active or not var.active, "a place loses a derivative"


def check_code(program: Program, layout: Layout, code: Mapping[Label, Code]) -> None:
    """The jaxpr of each block has the types of the places that it reads and writes."""
    for number, block in enumerate(blocks_of(program.items)):
        c = code[block.label]
        assert c.number == number, "blocks are numbered in program order"
        ins: list[Var] = [*c.ins, *(r.out for r in c.reads)]
        given = value_types([v.aval for v in ins])
        assert value_types(c.jaxpr.in_avals) == given, "an input of another type"
        *results, after = c.jaxpr.out_avals
        wanted = value_types([v.aval for v in c.outs]) + list(map(_row_type, c.writes))
        wanted += [((), np.dtype(np.int32))] * len(c.numbers)
        assert value_types(results) == wanted, "a result of another type"
        assert value_types([after]) == [((), np.dtype(np.int32))], "no counter"
        assert c.ruled.in_avals == c.jaxpr.in_avals
        assert c.ruled.out_avals == c.jaxpr.out_avals
        assert all(v in layout.where for v in (*c.ins, *c.outs))


def check_taped(
    program: Program, layout: Layout, taped: Mapping[Label, TapedCode]
) -> None:
    """Check where cotangents come from and go, block by block.

    They go to every active input that is read, and come from every active result; what
    a pullback may read again is unchanged when a stage is swept back. Only the block
    that ends the run is not taped.
    """
    assert len(taped) == len(list(blocks_of(program.items)))
    for block in blocks_of(program.items):
        t = taped[block.label]
        assert t.ending == (not block.next.targets), "another block ends the run"
        inputs = [*t.code.ins, *(r.out for r in t.code.reads)]
        replaced = {w.stream for w in block.writes if w.at is None}
        ins = [i for i, v in enumerate(inputs) if v.active]
        results = [*t.code.outs, *(w.stream for w in t.code.writes)]
        outs = [i for i, v in enumerate(results) if v.active]
        if not ins or not outs:
            ins = outs = []
        assert (list(t.active_ins), list(t.active_outs)) == (ins, outs), (
            f"a cotangent goes astray in {block.label}"
        )
        sources = [*t.code.ins, *(r.stream for r in t.code.reads)]
        for i in t.lasting:
            assert layout.where[sources[i]].kind in ("operand", "resident")
            assert sources[i] not in replaced, "read again after it was replaced"


def check_sharing(program: Program, before: Layout, after: Layout) -> None:
    """Check that no value is needed in a place once that holds a cotangent.

    A stream and its cotangent may share a place if the last block alone reads the
    stream, whole, and by a derivative; if all other blocks do with it is write rows (or
    leave them as they are); and if it is no output. Looked at in the blocks themselves.
    """
    assert (after.where, after.avals, after.active, after.fills) == (
        before.where,
        before.avals,
        before.active,
        before.fills,
    ), "sharing moved something"
    *others, last = blocks_of(program.items)
    for place in after.turned:
        (var,) = _residents(after, place)
        assert var.active and place in after.active, "a place without a cotangent"
        assert var not in program.outs, "an output is overwritten"
        assert var in _whole_reads(last), "nothing makes its cotangent"
        assert not _is_assigned(last, var), "the last block changes it"
        assert not any(r.stream is var for r in last.reads), "read by rows, too"
        assert any(w.stream is var for b in others for w in b.writes), "no stream"
        for block in others:
            own = _row_loop_inputs(block, var)
            assert var not in _whole_reads(block) - own, "read before the last block"
            assert not any(r.stream is var for r in block.reads), "a row read again"


def _row_type(write: Write) -> tuple[Any, Any]:
    aval = write.stream.aval
    return aval.shape[write.at is not None :], aval.dtype


def _residents(layout: Layout, place: Location) -> list[Var]:
    assert place.kind == "resident", "a snapshot would hold a cotangent"
    return [v for v, p in layout.where.items() if p == place]


def _is_assigned(block: Block, var: Var) -> bool:
    made = any(var in op.outs for op in block.ops)
    return made or var in block.moves or any(w.stream is var for w in block.writes)


def _whole_reads(block: Block) -> set[Atom]:
    index = [] if block.next.index is None else [block.next.index]
    used = [a for op in block.ops for a in op.ins]
    late = [w.source for w in block.writes]
    return {*used, *block.moves.values(), *late, *index}


def _row_loop_inputs(block: Block, var: Var) -> set[Atom]:
    """The stream, if all that takes it whole is a loop that writes rows of it."""
    takers = [op for op in block.ops if var in op.ins]
    passed = {w.source for w in block.writes if w.at is None and w.stream is var}
    own = all("own" in op.eqn.params and passed & {*op.outs} for op in takers)
    elsewhere = {*block.moves.values(), block.next.index}
    return {var} if takers and own and var not in elsewhere else set()

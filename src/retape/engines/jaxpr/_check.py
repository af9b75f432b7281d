"""The checker of the intermediate form: run on the output of every pass.

A broken rule here is a fault of ours, never the user's, so these are assertions.
"""

from __future__ import annotations

from ._code import Code
from ._ir import Item, Label, Lit, Loop, Program, Var, blocks_of
from ._layout import Layout
from ._liveness import Liveness


def check_program(program: Program) -> None:
    """Blocks jump to blocks, every value is assigned before use, types agree."""
    blocks = list(blocks_of(program.items))
    labels = {b.label for b in blocks}
    assert len(labels) == len(blocks), "two blocks with one label"
    assigned = set(program.given).union(*(b.defs() for b in blocks))
    for block in blocks:
        known = assigned
        for atom in block.uses():
            assert atom in known, f"{atom} is read in {block.label}, assigned nowhere"
        for dst, src in block.moves.items():
            assert (dst.aval.shape, dst.aval.dtype) == (
                src.aval.shape,
                src.aval.dtype,
            ), f"move of {src.aval} to {dst.aval}"
            assert dst.active or isinstance(src, Lit) or not src.active, (
                f"a derivative is lost in the move {dst} <- {src}"
            )
        for write in block.writes:
            own = write.stream.aval.shape
            wanted = own if write.at is None else own[1:]
            assert write.source.aval.shape == wanted, f"written into {own}"
        assert set(block.next.targets) <= labels, f"{block.label} jumps nowhere"
        assert not program.given & block.defs(), "an operand is assigned"
    _check_loops(program.items)
    assert not blocks[-1].next.targets, "the last block must end the run"


def _check_loops(items: list[Item]) -> None:
    for item in items:
        if isinstance(item, Loop):
            assert item.items, "an empty loop"
            assert not isinstance(item.items[0], Loop), "a loop begins with a block"
            _check_loops(item.items)


def check_layout(program: Program, layout: Layout, live: Liveness) -> None:
    """Nothing is live unassigned; variables live together have places of their own."""
    first = next(blocks_of(program.items))
    assert not live.entry[first.label], "a variable is read before it is assigned"
    for alive in (*live.entry.values(), *live.exit.values()):
        places = [layout.where[v] for v in alive]
        assert len(set(places)) == len(places), "two live variables in one place"
    for block in blocks_of(program.items):
        streams = [w.stream for w in block.writes if w.at is None]
        assert all(layout.where[s].kind == "kept" for s in streams), (
            "a loop in a step writes a stream that snapshots hold"
        )
    for var, place in layout.where.items():
        aval = layout.avals[place]
        assert (aval.shape, aval.dtype) == (var.aval.shape, var.aval.dtype)


def check_code(program: Program, layout: Layout, code: dict[Label, Code]) -> None:
    """The jaxpr of each block has the types of the places that it reads and writes."""
    for block in blocks_of(program.items):
        c = code[block.label]
        ins: list[Var] = [*c.ins, *(r.out for r in c.reads)]
        for var, aval in zip(ins, c.jaxpr.in_avals, strict=True):
            assert (var.aval.shape, var.aval.dtype) == (aval.shape, aval.dtype)
        outs = [v.aval for v in c.outs]
        for want, got in zip(outs, c.jaxpr.out_avals, strict=False):
            assert (want.shape, want.dtype) == (got.shape, got.dtype)
        assert c.ruled.in_avals == c.jaxpr.in_avals
        assert c.ruled.out_avals == c.jaxpr.out_avals
        assert len(c.jaxpr.out_avals) == len(c.outs) + len(c.writes) + 1
        assert all(v in layout.where for v in (*c.ins, *c.outs))

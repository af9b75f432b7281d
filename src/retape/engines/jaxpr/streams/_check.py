"""The checker of promotion: what must hold of an array that became a stream.

It looks at the blocks alone, not at the proof of `streams/_promote_buffers`.
"""

from __future__ import annotations

from dataclasses import dataclass

from retape.engines.jaxpr.ir._flow_graph import Flow
from retape.engines.jaxpr.ir._ir import (
    Atom,
    Block,
    Program,
    RowNumber,
    Var,
    blocks_of,
)


@dataclass(frozen=True, slots=True)
class Outline:
    """The parts of a program that promotion must leave as they are."""

    outs: tuple[Atom, ...]
    streams: frozenset[Var]
    blocks: int

    @staticmethod
    def of(program: Program) -> Outline:
        """That of a program, before it is changed in place."""
        blocks = list(blocks_of(program.items))
        streams = frozenset(w.stream for b in blocks for w in b.writes)
        return Outline(program.outs, streams, len(blocks))


def check_promoted(before: Outline, program: Program) -> None:
    """Check that every new stream is written once, and read when it is complete.

    It begins outside of loops, with one value; in loops its rows are only written, by
    numbers that their blocks compute; and what the program returns is as active as
    before.
    """
    flow = Flow(program)
    for old, new in zip(before.outs, program.outs, strict=True):
        assert (old.aval.shape, old.aval.dtype) == (new.aval.shape, new.aval.dtype)
        lost = isinstance(old, Var) and old.active
        assert not lost or (isinstance(new, Var) and new.active), "a lost derivative"
    assert len(flow.blocks) >= before.blocks, "a block is gone"
    new = {w.stream for b in flow.blocks for w in b.writes} - before.streams
    for stream in new:
        born = [b for b in flow.blocks if stream in b.moves]
        assert len(born) == 1, "a stream begins once"
        assert not flow.inside(born[0]), "a stream begins before its loops"
        made = [b for b in flow.blocks if any(stream in op.outs for op in b.ops)]
        assert not made, "a stream is no operation's result"
        writers = [b for b in flow.blocks if any(w.stream is stream for w in b.writes)]
        for block in writers:
            rows = [w.at for w in block.writes if w.stream is stream]
            placed = all(isinstance(at, RowNumber) for at in rows)
            assert placed, "a stream is written by rows"
        last = max(flow.blocks.index(b) for b in writers)
        for block in flow.blocks[: last + 1]:
            if not flow.inside(block):
                continue
            assert stream not in _read_whole(block), "read before it is complete"
            rows = any(r.stream is stream for r in block.reads)
            assert not rows, "a row read before its time"


def _read_whole(block: Block) -> set[Atom]:
    index = [] if block.next.index is None else [block.next.index]
    used = [a for op in block.ops for a in op.ins]
    return {*used, *block.moves.values(), *(w.source for w in block.writes), *index}

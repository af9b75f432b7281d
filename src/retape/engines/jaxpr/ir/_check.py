"""The checker of the intermediate form: run on the output of every pass.

A broken rule here is a fault of ours, never the user's, so these are assertions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from retape.engines.jaxpr.ir._ir import (
    Atom,
    Block,
    Item,
    Label,
    Lit,
    Loop,
    Program,
    Var,
    blocks_of,
)

_NUMBER_TYPE = ((), np.dtype(np.int32))
"""The type of a row's number."""


def check_program(program: Program) -> None:
    """Check that a program is well formed.

    Blocks jump to blocks, forwards or to the head of a loop around them; every value is
    made before it is read, and types agree; no derivative is lost on the way.
    """
    blocks = list(blocks_of(program.items))
    labels = {b.label for b in blocks}
    assert len(labels) == len(blocks), "two blocks with one label"
    known = set(program.given).union(*(b.defs() for b in blocks))
    for block in blocks:
        for atom in block.uses():
            assert atom in known, f"{atom} is read in {block.label}, assigned nowhere"
        assert set(block.next.targets) <= labels, f"{block.label} jumps nowhere"
        assert not program.given & block.defs(), "an operand is assigned"
        check_block(block)
    for out in program.outs:
        assert isinstance(out, Lit) or out in known, f"{out} is returned, never made"
    _check_loops(program.items)
    assert not blocks[-1].next.targets, "the last block must end the run"
    assert all(b.next.targets for b in blocks[:-1]), "a block before it ends the run"
    _check_jumps(program.items, {b.label: i for i, b in enumerate(blocks)}, [])


def check_block(block: Block) -> None:
    """Check that a block reads what it made, in order, and hands on what fits."""
    made = {o for op in block.ops for o in op.outs}
    known: set[Atom] = {r.out for r in block.reads}
    for op in block.ops:
        early = {a for a in op.ins if a in made} - known
        assert not early, f"{early} read in {block.label} before it is made"
        if any(o.active for o in op.outs):
            moved = any(not isinstance(a, Lit) and a.active for a in op.ins)
            assert moved, f"a derivative comes from nowhere in {block.label}"
        known |= set(op.outs)
    for dst, src in block.moves.items():
        assert (dst.aval.shape, dst.aval.dtype) == (src.aval.shape, src.aval.dtype), (
            f"move of {src.aval} to {dst.aval}"
        )
        assert dst.active or isinstance(src, Lit) or not src.active, (
            f"a derivative is lost in the move {dst} <- {src}"
        )
    for read in block.reads:
        assert read.out.aval.shape == read.stream.aval.shape[1:], "no row of its stream"
    for write in block.writes:
        own, source = write.stream.aval.shape, write.source
        wanted = own if write.at is None else own[1:]
        assert source.aval.shape == wanted, f"written into {own}"
        number = write.number
        assert (
            number is None or (number.aval.shape, number.aval.dtype) == _NUMBER_TYPE
        ), f"a row is no number in {block.label}"
        assert write.stream.active or isinstance(source, Lit) or not source.active, (
            f"a derivative is lost in a row of {write.stream}"
        )


def check_same_work(before: Program, after: Program) -> None:
    """Check a pass that joins blocks, or cuts them: nothing they do is lost by it.

    Operations may be done again, and new ones besides; rows are written as often.
    """
    pair = before, after
    assert set(_all_outs(after)).issuperset(_all_outs(before)), "an operation was lost"
    rows = [[w.stream for b in blocks_of(p.items) for w in b.writes] for p in pair]
    assert Counter(rows[0]) == Counter(rows[1]), "a row is written twice, or not at all"


def _all_outs(program: Program) -> Iterator[tuple[Var, ...]]:
    """What operations make, those in the loops that are operations among them."""
    for op in (op for block in blocks_of(program.items) for op in block.ops):
        yield op.outs
        body = getattr(op.eqn.params.get("own"), "block", None)
        yield from (inner.outs for inner in (body.ops if body is not None else ()))


def _check_loops(items: Sequence[Item]) -> None:
    for item in items:
        if isinstance(item, Loop):
            assert item.items, "an empty loop"
            assert not isinstance(item.items[0], Loop), "a loop begins with a block"
            _check_loops(item.items)


def _check_jumps(
    items: Sequence[Item], number: dict[Label, int], heads: Sequence[Label]
) -> None:
    """A run goes forwards, or back to the head of a loop that it is in.

    The resumable nest falls through to what comes later, and goes round loops; it never
    finds a block that is behind it in no loop.
    """
    for item in items:
        if isinstance(item, Loop):
            first = item.items[0]
            assert isinstance(first, Block)
            _check_jumps(item.items, number, [*heads, first.label])
        else:
            own = number[item.label]
            back = [t for t in item.next.targets if number[t] <= own and t not in heads]
            assert not back, f"{item.label} jumps back to {back}, out of every loop"

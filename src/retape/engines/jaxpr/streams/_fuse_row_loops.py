"""Fuse an inner loop that only writes rows into the step around it.

Flattening opens every loop that a derivative goes through, so one in the middle of a
step ends the step, and whatever the rest of it still needs is a register there, in
every snapshot. Before:

    L1:  s = slopes(y);  z = y + s        moves k <- i     next: test(k) ? L2 : L3
    L2:  writes ys[k] = part(y, s, k)     moves k <- k + 1 next: test(k) ? L2 : L3
    L3:                                   moves y <- z, i <- k    next: ... L1

After, and `y`, `i` are the only registers:

    L1:  s = slopes(y);  z = y + s;  k, r = rows[...] i, y, s, ys
         writes ys = r     moves y <- z, i <- k     next: ... L1

It may be done if from trip to trip nothing is carried that a derivative goes through
(`_row_loop`): then the step needs no tape for each trip. How often it runs need not be
known. A loop of which one of these facts is not found stays open:

- It stands in another loop, is one block, and one block leads to it, one follows.
- It assigns nothing active, has no effects, and none of its values is seen outside but
  by its moves.
- It writes rows of streams, one of each a trip, always another one: the number of the
  row grows with the trips. It reads nothing of them.
- Nobody writes or reads those streams in the two blocks around it, and what these two
  read and write row by row is at places that are known before the step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax

from retape.engines.jaxpr.ir._flow_graph import Flow
from retape.engines.jaxpr.ir._ir import (
    Atom,
    Block,
    Item,
    Loop,
    Op,
    Position,
    Program,
    RowNumber,
    Var,
    Write,
    run_length,
)
from retape.engines.jaxpr.jaxprs._avals import struct, varying
from retape.engines.jaxpr.streams._row_loop import RowLoop, rows_p


def fuse_row_loops(program: Program) -> Program:
    """The program with every such loop made an operation of the block before it."""
    flow = Flow(program)
    items = [
        Loop(_absorbed(i.items, flow), i.length) if isinstance(i, Loop) else i
        for i in program.items
    ]
    return replace(program, items=items, length=run_length(items))


def _absorbed(items: Sequence[Item], flow: Flow) -> list[Item]:
    """The items of a loop, loops among them absorbed where that is possible."""
    found: list[Item] = []
    for item in items:
        if isinstance(item, Loop):
            item = Loop(_absorbed(item.items, flow), item.length)
        if isinstance(item, Block) and len(found) > 1:
            before, loop = found[-2:]
            if isinstance(before, Block) and isinstance(loop, Loop):
                whole = _whole(before, loop, item, flow)
                if whole is not None:
                    found[-2:] = [whole]
                    continue
        found.append(item)
    return found


# Whether ---------------------------------------------------------------------------


def _whole(before: Block, loop: Loop, after: Block, flow: Flow) -> Block | None:
    """The three as one block, if they may be one."""
    body = loop.items[0]
    if len(loop.items) != 1 or not isinstance(body, Block):
        return None
    if not _alone(before, body, after, flow):
        return None
    found = _row_loop(body, flow)
    if found is None or not _apart(before, found, after):
        return None
    return _joined_block(before, found, after, flow.program.written)


def _alone(before: Block, body: Block, after: Block, flow: Flow) -> bool:
    """True if only the first leads to the loop, and only these two to what follows."""
    ends = after.label, body.label
    if before.next.targets != ends or body.next.targets != ends:
        return False
    jumps = Counter(t for b in flow.blocks for t in b.next.targets)
    # A block that was joined to others before jumps where the last of them did.
    return jumps[after.label] == jumps[body.label] == 2


def _row_loop(body: Block, flow: Flow) -> RowLoop | None:
    """A loop's body as an operation, if it does no more than write rows."""
    own = dict.fromkeys(w.stream for w in body.writes)
    made = {o for op in body.ops for o in op.outs} | {r.out for r in body.reads}
    carry = [v for v in body.moves if v in body.uses() or flow.seen_outside(v, body)]
    given = [v for v in _in_order(body.uses()) if v not in own and v not in body.moves]
    fine = (
        bool(own)
        and not any(v.active for v in carry)
        and not any(op.eqn.effects for op in body.ops)
        and not any(flow.seen_outside(v, body) for v in made)
        and all(isinstance(w.at, RowNumber) and w.at.rises for w in body.writes)
        and len(own) == len(body.writes)
        and not own.keys()
        & (body.moves.keys() | {a for op in body.ops for a in op.ins})
        and all(_is_fixed(r.stream, flow) for r in body.reads)
        and all(_is_born_outside(s, flow) for s in own)
        and not any(varying(v.aval) for v in (*carry, *given, *own, *made))
    )
    return RowLoop(body, tuple(carry), tuple(given), tuple(own)) if fine else None


def _in_order(variables: set[Var]) -> list[Var]:
    return sorted(variables, key=lambda v: v.serial)


def _is_fixed(stream: Var, flow: Flow) -> bool:
    """Tell whether a stream is an operand, and no derivative goes to it."""
    return stream in flow.program.operands and not stream.active


def _is_born_outside(stream: Var, flow: Flow) -> bool:
    """Tell whether a stream is assigned outside of loops only, but for its rows."""
    return not any(
        flow.inside(b) and (stream in b.moves or any(stream in op.outs for op in b.ops))
        for b in flow.blocks
    )


def _apart(before: Block, loop: RowLoop, after: Block) -> bool:
    """Tell whether reads and writes of the three blocks may be put in a new order.

    One block reads its rows at its beginning and writes them at its end. So what was
    done in between must not matter, by each of these rules.
    """
    return (
        _is_left_alone(before, loop, after)
        and _is_placed_before(before, loop, after)
        and _is_not_read_back(before, loop, after)
    )


def _is_left_alone(before: Block, loop: RowLoop, after: Block) -> bool:
    """The two blocks around a loop do nothing with its streams.

    Not `after: r = ys[0]`: it would read the row before the loop has written it.
    """
    streams = set(loop.streams)
    for block in (before, after):
        rows = {a.stream for a in (*block.reads, *block.writes)}
        whole = {a for op in block.ops for a in op.ins} | {*block.moves.values()}
        if streams & (rows | whole):
            return False
    return True


def _is_placed_before(before: Block, loop: RowLoop, after: Block) -> bool:
    """Where the last block reads and writes rows is known before the first one.

    Not `before: moves i <- i + 1`, `after: zs[i] <- z`: row i would be the old one.
    """
    accesses = (*after.reads, *after.writes)
    counters = {a.at.count for a in accesses if isinstance(a.at, Position)}
    made = {o for op in after.ops for o in op.outs} | {r.out for r in after.reads}
    # Nor may what the others assign be made anew in the last: it has two values then.
    return not (before.defs() | loop.block.defs()) & (counters | made)


def _is_not_read_back(before: Block, loop: RowLoop, after: Block) -> bool:
    """Rows that the first block writes are read by neither of the others.

    Not `before: xs[i] <- x`, `after: r = xs[i]`: the row is not written yet.
    """
    written = {w.stream for w in before.writes}
    whole = {a for op in after.ops for a in op.ins}
    return not written & ({r.stream for r in after.reads} | whole | {*loop.given})


# How -------------------------------------------------------------------------------


def _joined_block(before: Block, loop: RowLoop, after: Block, written: Var) -> Block:
    """One block that does what the three did."""
    now: dict[Atom, Atom] = {**before.moves}

    def here(atom: Atom) -> Atom:
        return now.get(atom, atom)

    assert before.next.index is not None
    carried = [*map(here, loop.carry), *map(here, loop.given), *loop.streams]
    rows = _rows(loop, [before.next.index, written, *carried])
    n = len(loop.carry)
    now.update(zip(loop.carry, rows.outs[:n], strict=True))
    moves = {v: here(v) for v in (*before.moves, *loop.carry)}
    pairs = zip(loop.streams, rows.outs[n:], strict=True)
    writes = [Write(s, None, r) for s, r in pairs]
    return Block(
        before.label,
        reads=[*before.reads, *after.reads],
        ops=[*before.ops, rows, *(_renamed(op, now) for op in after.ops)],
        moves=moves | {v: here(a) for v, a in after.moves.items()},
        writes=[
            *before.writes,
            *writes,
            *(_written_here(w, here) for w in after.writes),
        ],
        next=after.next
        if after.next.index is None
        else replace(after.next, index=here(after.next.index)),
    )


def _written_here(write: Write, here: Callable[[Atom], Atom]) -> Write:
    at = write.at
    if isinstance(at, RowNumber):
        at = replace(at, index=here(at.index))
    return replace(write, at=at, source=here(write.source))


def _renamed(op: Op, now: dict[Atom, Atom]) -> Op:
    ins = tuple(now.get(a, a) for a in op.ins)
    return op if ins == op.ins else replace(op, ins=ins)


def _rows(loop: RowLoop, operands: Sequence[Atom]) -> Op:
    """The operation that goes through all trips, and writes their rows."""

    def bound(*values: Any) -> list[Any]:
        return rows_p.bind(*values, own=loop)

    (eqn,) = jax.make_jaxpr(bound)(*(struct(a.aval) for a in operands)).eqns
    results = (*loop.carry, *loop.streams)
    return Op(eqn, tuple(operands), tuple(Var(v.aval, v.active) for v in results))

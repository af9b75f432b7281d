"""A pass of its own: long straight-line blocks are cut into several.

A block is one step, and a step is taped and swept back whole, so the least memory that
a program can be reversed in is what the derivative of its hungriest block takes. Where
that is too much (a layer of a network is one block), the block is cut in between its
operations. Before, and after one cut:

    L1:  a = f(x);  b = g(a);  c = h(b)   moves x <- c   next: test ? L1 : L2

    L1:  a = f(x);  b = g(a)                             next: L3
    L3:  c = h(b)                         moves x <- c   next: test ? L1 : L2

What is alive at a cut becomes a register, in every snapshot. So cuts are made where
little is alive: the places are chosen together, by dynamic programming, such that no
piece tapes more than a given number of bytes and the registers at the cuts take the
fewest. Rows of streams are read, and what follows cheaply from operands and rows is
computed, in every piece that needs it, rather than carried across.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace

from ._activity import eqn_tape_bytes
from ._ir import (
    Atom,
    Block,
    Item,
    Jump,
    Label,
    Lit,
    Loop,
    Op,
    Program,
    Read,
    Var,
    Write,
    blocks_of,
    nbytes,
    run_length,
)
from ._residuals import CHEAP

# Moving or making up data, at most a flop an element: done again rather than carried.
_CHEAP = frozenset(
    "broadcast_in_dim iota reshape squeeze expand_dims full transpose slice copy"
    " convert_element_type eq ne lt le gt ge and or not add sub mul neg select_n"
    " max min stop_gradient".split()
)
_PIECE = 4096
"""Bytes that one more piece is worth avoiding: its guard and its code."""


def cut(program: Program, limit: int) -> Program:
    """The program with every block that tapes more than `limit` bytes in pieces.

    An operation that tapes more than that alone is a piece of its own.
    """
    items = _cut_items(program.items, program.given, limit)
    return replace(program, items=items, length=run_length(items))


def dearest(program: Program) -> int:
    """Bytes that the block taping the most may tape, by the measure of `cut`."""
    return max(sum(map(_tape_bytes, b.ops)) for b in blocks_of(program.items))


def _cut_items(items: list[Item], operands: frozenset[Var], limit: int) -> list[Item]:
    found: list[Item] = []
    for item in items:
        if isinstance(item, Loop):
            found.append(Loop(_cut_items(item.items, operands, limit), item.length))
        elif sum(map(_tape_bytes, item.ops)) <= limit:
            found.append(item)
        else:
            found += _cut_block(item, operands, limit)
    return found


def _tape_bytes(op: Op) -> int:
    """Bytes of an operation's results, but for what XLA computes where it is used."""
    # Of a loop that writes rows nothing is taped but what it reads.
    if op.eqn.primitive.name in CHEAP or "own" in op.eqn.params:
        return 0
    ins = [isinstance(a, Var) and a.active for a in op.ins]
    return eqn_tape_bytes(op.eqn, ins, [o.active for o in op.outs])


def _cut_block(block: Block, operands: frozenset[Var], limit: int) -> list[Block]:
    again = _recomputed(block, operands)
    # An operation without results is a check, and stays where it stands.
    own = [op for op in block.ops if not any(o in again for o in op.outs)]
    # A stream that a loop writes rows of is where it is, before and after.
    filled = {a for w in block.writes if w.at is None for a in (w.stream, w.source)}
    widths = _widths(block, own, again, operands | filled)
    costs = [_tape_bytes(op) for op in own]
    bounds = _places(costs, widths, limit)
    pieces = [own[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    return _chain(block, pieces, again) if len(pieces) > 1 else [block]


# Where ---------------------------------------------------------------------------


def _recomputed(block: Block, operands: frozenset[Var]) -> dict[Var, Op | Read]:
    """What each piece makes for itself: rows, and what is cheap to make of them."""
    found: dict[Var, Op | Read] = {r.out: r for r in block.reads}
    for op in block.ops:
        cheap = op.eqn.primitive.name in _CHEAP and len(op.outs) == 1
        given = [a for a in op.ins if isinstance(a, Var)]
        if cheap and all(a in operands or a in found for a in given):
            # A derivative by an operand is gathered where the operand is used.
            found[op.outs[0]] = op
    return found


def _widths(
    block: Block,
    own: Sequence[Op],
    again: dict[Var, Op | Read],
    operands: Set[Atom],
) -> list[int]:
    """For each place between operations, the bytes of the values alive there."""
    last = _last_uses(block, own, again)
    made = {o: i for i, op in enumerate(own) for o in op.outs}
    change = [0] * (len(own) + 2)
    for var, until in last.items():
        if var not in operands and var not in again:
            # Alive at the places `made + 1 .. until`.
            change[made.get(var, -1) + 1] += nbytes(var.aval)
            change[until + 1] -= nbytes(var.aval)
    widths, total = [], 0
    for step in change[: len(own) + 1]:
        total += step
        widths.append(total)
    return widths


def _last_uses(
    block: Block, own: Sequence[Op], again: dict[Var, Op | Read]
) -> dict[Var, int]:
    """The number of the last operation that reads each value; the end is one more."""
    last: dict[Var, int] = {}
    for i, op in enumerate(own):
        for var in _closure(op.ins, again):
            last[var] = i
    for var in _closure(_at_end(block), again):
        last[var] = len(own)
    return last


def _at_end(block: Block) -> list[Atom]:
    """What the end of a block reads: moves, writes, the choice of the next block."""
    index = [] if block.next.index is None else [block.next.index]
    late = [w for w in block.writes if _is_late(w, block)]
    return [*block.moves.values(), *(w.source for w in late), *index]


def _is_late(write: Write, block: Block) -> bool:
    """Whether a row must be written at the end, and not as soon as it is known.

    That is so if anything in the block reads the stream, or assigns it; a loop that
    writes rows of it is the only one that does.
    """
    if write.at is None:
        return False
    read = {a for op in block.ops for a in op.ins} | {r.stream for r in block.reads}
    made = {o for op in block.ops for o in op.outs}
    touched = read | set(block.moves)
    return write.stream in touched or write.source not in made


def _closure(atoms: Iterable[Atom], again: dict[Var, Op | Read]) -> dict[Var, None]:
    """The variables, and those from which what is made again among them follows.

    In the order in which they are needed, the last first.
    """
    found: dict[Var, None] = {}
    stack = [a for a in atoms if isinstance(a, Var)]
    while stack:
        var = stack.pop()
        if var in found:
            continue
        found[var] = None
        source = again.get(var)
        if isinstance(source, Read):
            stack += [source.stream, source.at.count]
        elif source is not None:
            stack += [a for a in source.ins if isinstance(a, Var)]
    return found


def _places(costs: Sequence[int], widths: Sequence[int], limit: int) -> list[int]:
    """The bounds of the pieces: none above the limit, least alive between them."""
    n = len(costs)
    # `best[i]`: the fewest bytes with a cut at i, and where the piece before it begins.
    best: list[tuple[int, int]] = [(0, 0)]
    # Starts that a piece may have, the cheapest first: the minimum of a sliding window.
    starts: deque[int] = deque()
    low, total = 0, 0
    for end in range(1, n + 1):
        while starts and best[starts[-1]][0] >= best[end - 1][0]:
            starts.pop()
        starts.append(end - 1)
        total += costs[end - 1]
        while total > limit and low < end - 1:
            total -= costs[low]
            low += 1
        while starts[0] < low:
            starts.popleft()
        price = _PIECE + (widths[end] if end < n else 0)
        best.append((best[starts[0]][0] + price, starts[0]))
    bounds = [n]
    while bounds[-1] > 0:
        bounds.append(best[bounds[-1]][1])
    return bounds[::-1]


# How -----------------------------------------------------------------------------


def _chain(
    block: Block, pieces: Sequence[Sequence[Op]], again: dict[Var, Op | Read]
) -> list[Block]:
    """One block for each piece, each going on to the next."""
    order = {id(op): i for i, op in enumerate(block.ops)}
    labels = [block.label, *(Label() for _ in pieces[1:])]
    found: list[Block] = []
    done: set[Var] = {v for v, source in again.items() if isinstance(source, Read)}
    for i, (label, ops) in enumerate(zip(labels, pieces, strict=True)):
        is_last = i == len(pieces) - 1
        made = {o for op in ops for o in op.outs}
        writes = [w for w in block.writes if _belongs(w, block, made, is_last)]
        needed: list[Atom] = [a for op in ops for a in op.ins]
        # What no piece has use for another block may read, or nobody.
        needed += [*_at_end(block), *(again.keys() - done)] if is_last else []
        sources = [again[v] for v in _closure(needed, again) if v in again]
        remade = [s for s in sources if isinstance(s, Op)]
        done |= {o for op in remade for o in op.outs}
        found.append(
            Block(
                label,
                reads=[r for r in block.reads if r in sources],
                ops=sorted([*remade, *ops], key=lambda op: order[id(op)]),
                moves=block.moves if is_last else {},
                writes=writes,
                next=block.next if is_last else Jump(None, (labels[i + 1],)),
            )
        )
    return found


def _belongs(write: Write, block: Block, made: set[Var], is_last: bool) -> bool:
    return is_last if _is_late(write, block) else write.source in made


# Checked -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a chain of pieces did, in order."""

    ops: list[Op]
    writes: list[Write]
    moves: dict[Var, Atom]
    last: Block


def check_cut(before: Program, after: Program) -> None:
    """Every block became one chain of pieces that does the same, in the same order."""
    following = {b.label: b for b in blocks_of(after.items)}
    wanted = list(blocks_of(before.items))
    used = 0
    for block in wanted:
        seen, length = _walk(block, following, {b.label for b in wanted})
        used += length
        order = {id(op): i for i, op in enumerate(block.ops)}
        numbers = [order.get(id(op), -1) for op in seen.ops]
        assert -1 not in numbers, "a piece does what its block did not"
        assert set(numbers) == set(order.values()), "an operation was lost in cutting"
        assert sorted(map(id, seen.writes)) == sorted(map(id, block.writes)), (
            "a row is written twice, or not at all"
        )
        assert seen.moves == block.moves and seen.last.next == block.next
    assert used == len(following), "a piece that belongs to no block"


def _walk(
    block: Block, following: dict[Label, Block], heads: set[Label]
) -> tuple[_Seen, int]:
    """Go along the pieces of a block, checking that each has what it reads."""
    piece, length = following[block.label], 1
    seen = _Seen([], [], {}, piece)
    own = {o for op in block.ops for o in op.outs} | {r.out for r in block.reads}
    known: set[Atom] = set()
    while True:
        known |= {r.out for r in piece.reads}
        for op in piece.ops:
            lacking = {a for a in op.ins if not isinstance(a, Lit) and a in own} - known
            assert not lacking, f"{lacking} read in {piece.label} before it is made"
            known |= set(op.outs)
        seen = _Seen(
            [*seen.ops, *piece.ops],
            [*seen.writes, *piece.writes],
            seen.moves | piece.moves,
            piece,
        )
        targets = piece.next.targets
        if len(targets) != 1 or targets[0] in heads:
            return seen, length
        assert not piece.moves, "only the last piece assigns what other blocks see"
        piece, length = following[targets[0]], length + 1

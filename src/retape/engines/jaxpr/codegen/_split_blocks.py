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

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace

from retape.engines.jaxpr.analysis._activity import eqn_tape_bytes
from retape.engines.jaxpr.ir._check import check_same_work
from retape.engines.jaxpr.ir._ir import (
    Atom,
    Block,
    Item,
    Jump,
    Label,
    Loop,
    Op,
    Program,
    Read,
    Var,
    Write,
    blocks_of,
    run_length,
)
from retape.engines.jaxpr.jaxprs._avals import nbytes
from retape.engines.jaxpr.jaxprs._primitive_table import Again, traits
from retape.schedule._in_use import running_sums

_PIECE = 4096
"""Bytes that one more piece is worth avoiding: its guard and its code."""


def split_blocks(program: Program, limit: int) -> Program:
    """The program with every block that tapes more than `limit` bytes in pieces.

    An operation that tapes more than that alone is a piece of its own.
    """
    items = _cut_items(program.items, program.given, limit)
    return replace(program, items=items, length=run_length(items))


def max_tape_bytes(program: Program) -> int:
    """Bytes that the block taping the most may tape, as `split_blocks` counts."""
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
    if traits(op.eqn).again >= Again.FUSED or "own" in op.eqn.params:
        return 0
    ins = [isinstance(a, Var) and a.active for a in op.ins]
    return eqn_tape_bytes(op.eqn, ins, [o.active for o in op.outs])


def _cut_block(block: Block, operands: frozenset[Var], limit: int) -> list[Block]:
    again = _recomputed(block, operands)
    # An operation without results is a check, and stays where it stands.
    own = [op for op in block.ops if not any(o in again for o in op.outs)]
    # A stream that a loop writes rows of is where it is, before and after.
    filled = {a for w in block.writes if w.at is None for a in (w.stream, w.source)}
    early = _early_writes(block, own)
    widths = _widths(block, own, early, again, operands | filled)
    costs = [_tape_bytes(op) for op in own]
    bounds = _bounds(costs, widths, limit)
    pieces = [
        _Piece(own[a:b], [w for i in range(a, b) for w in early[i]])
        for a, b in zip(bounds, bounds[1:], strict=False)
    ]
    return _chain(block, pieces, again) if len(pieces) > 1 else [block]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Operations, and the rows that are known by their end."""

    ops: list[Op]
    writes: list[Write]


# Where ---------------------------------------------------------------------------


def _recomputed(block: Block, operands: frozenset[Var]) -> dict[Var, Op | Read]:
    """Values that each piece recomputes: rows, and what is cheap to make of them."""
    found: dict[Var, Op | Read] = {r.out: r for r in block.reads}
    for op in block.ops:
        cheap = traits(op.eqn).again >= Again.LIGHT and len(op.outs) == 1
        given = [a for a in op.ins if isinstance(a, Var)]
        if cheap and all(a in operands or a in found for a in given):
            # A derivative by an operand is gathered where the operand is used.
            found[op.outs[0]] = op
    return found


def _widths(
    block: Block,
    own: Sequence[Op],
    early: defaultdict[int, list[Write]],
    again: dict[Var, Op | Read],
    operands: Set[Atom],
) -> list[int]:
    """For each place between operations, the bytes of the values alive there."""
    last = _last_uses(block, own, early, again)
    made = {o: i for i, op in enumerate(own) for o in op.outs}
    carried = (v for v in last if v not in operands and v not in again)
    # Alive at the places `made + 1 .. until`.
    alive = ((made.get(v, -1) + 1, last[v] + 1, nbytes(v.aval)) for v in carried)
    return running_sums(alive, len(own) + 1)


def _last_uses(
    block: Block,
    own: Sequence[Op],
    early: defaultdict[int, list[Write]],
    again: dict[Var, Op | Read],
) -> dict[Var, int]:
    """The number of the last operation that reads each value; the end is one more."""
    last: dict[Var, int] = {}
    for i, op in enumerate(own):
        for var in _closure([*op.ins, *_row_atoms(early[i])], again):
            last[var] = i
    for var in _closure(_at_end(block, _late(block, early)), again):
        last[var] = len(own)
    return last


def _at_end(block: Block, late: Sequence[Write]) -> list[Atom]:
    """Values read at the end of a block: by moves, writes, the next jump."""
    index = [] if block.next.index is None else [block.next.index]
    return [*block.moves.values(), *_row_atoms(late), *index]


def _row_atoms(writes: Sequence[Write]) -> list[Atom]:
    """What is written, and what says where."""
    atoms = [a for w in writes for a in (w.source, w.number)]
    return [a for a in atoms if a is not None]


def _early_writes(block: Block, own: Sequence[Op]) -> defaultdict[int, list[Write]]:
    """Rows that are written as soon as they are known, by the number of an operation.

    Not those of a stream that anything in the block reads, or assigns, or that is
    written twice: these are written at the end. A loop that writes rows of a stream is
    the only one that reads it.
    """
    made = {o: i for i, op in enumerate(own) for o in op.outs}
    read = {a for op in block.ops for a in op.ins} | {r.stream for r in block.reads}
    touched = read | set(block.moves)
    times = Counter(w.stream for w in block.writes)
    found: defaultdict[int, list[Write]] = defaultdict(list)
    for write in block.writes:
        alone = write.stream not in touched and times[write.stream] == 1
        if write.source in made and (alone or write.at is None):
            known = max(made[a] for a in _row_atoms([write]) if a in made)
            found[known].append(write)
    return found


def _late(block: Block, early: defaultdict[int, list[Write]]) -> list[Write]:
    """The rows that are written at the end of a block."""
    done = {id(w) for writes in early.values() for w in writes}
    return [w for w in block.writes if id(w) not in done]


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


def _bounds(costs: Sequence[int], widths: Sequence[int], limit: int) -> list[int]:
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
    block: Block, pieces: Sequence[_Piece], again: dict[Var, Op | Read]
) -> list[Block]:
    """One block for each piece, each going on to the next.

    Rows are written as soon as they are made. The last piece assigns what the block
    did, and goes on where the block did.
    """
    *firsts, last = pieces
    labels = [block.label, *(Label() for _ in firsts)]
    found: list[Block] = []
    for piece, label, following in zip(firsts, labels, labels[1:], strict=False):
        needed = _row_atoms(piece.writes)
        reads, ops = _with_sources(block, piece.ops, needed, again)
        jump = Jump(None, (following,))
        found.append(Block(label, reads, ops, writes=piece.writes, next=jump))
    done = {id(w) for b in found for w in b.writes}
    writes = [w for w in block.writes if id(w) not in done]
    # What no piece has made again another block may read, or nobody.
    remade = {o for b in found for op in b.ops for o in op.outs}
    lost = [v for v, source in again.items() if isinstance(source, Op)]
    needed = [*_at_end(block, writes), *(v for v in lost if v not in remade)]
    reads, ops = _with_sources(block, last.ops, needed, again)
    return [*found, Block(labels[-1], reads, ops, block.moves, writes, block.next)]


def _with_sources(
    block: Block,
    ops: Sequence[Op],
    needed: Iterable[Atom],
    again: dict[Var, Op | Read],
) -> tuple[list[Read], list[Op]]:
    """The rows to read, and the operations with what is made again for them.

    Args:
        block: The block that is cut.
        ops: The operations of a piece.
        needed: What else the piece reads.
        again: Values that each piece makes again.
    """
    read = [*(a for op in ops for a in op.ins), *needed]
    sources = [again[v] for v in _closure(read, again) if v in again]
    order = {id(op): i for i, op in enumerate(block.ops)}
    remade = [s for s in sources if isinstance(s, Op)]
    own = sorted([*remade, *ops], key=lambda op: order[id(op)])
    return [r for r in block.reads if r in sources], own


# Checked -------------------------------------------------------------------------


def check_split(before: Program, after: Program) -> None:
    """Pieces do what their blocks did, and the last of them alone assigns."""
    check_same_work(before, after)
    old, new = (
        [(b.moves, b.next) for b in blocks_of(p.items) if b.moves]
        for p in (before, after)
    )
    assert old == new, "only the last piece assigns what other blocks see"

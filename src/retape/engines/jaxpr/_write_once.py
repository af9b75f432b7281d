"""Pass 1b: a buffer that a loop fills row by row becomes a stream.

Before, the `ys`-by-hand of third-party code, a register of the loop:

    L0:  b = zeros[n, k]              moves rows <- b, i <- 0
    L1:  r = scatter rows i y         moves rows <- r, i <- i + 1     (a loop)

After, one array beside the capsules, of which a step writes a row:

    L0:                               moves rows <- b, i <- 0, at <- 0
    L1:  writes rows[at] = y          moves i <- i + 1, at <- at + 1

It is right because running a step again writes the same row again, and nobody sees a
row before it is written. Both are proved, for each buffer, from these facts; where one
fails the buffer stays a register:

- It is assigned zeros, once, outside every loop, and then by one write in one block.
- The write's row is a counter plus a constant. The counter starts at a number that
  stands in the program, and the writing block itself adds a positive number to it: no
  two writes meet in a row (short of 2**31 writes).
- Inside the loop nothing else reads the buffer. After it, anything may.

A row outside the buffer is not written by a scatter that drops it; here the last row
is then written with what it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core

from ._activity import outputs
from ._ir import (
    Atom,
    Aval,
    Block,
    Lit,
    Loop,
    Op,
    Position,
    Program,
    Read,
    Var,
    Write,
    blocks_of,
)
from ._types import struct

_FAR = 2**30
_FOLLOWED = frozenset("broadcast_in_dim reshape squeeze convert_element_type".split())


@dataclass(frozen=True, slots=True)
class _Row:
    """`counter + shift`, where `counter` starts at `start` and grows by `step`."""

    counter: Var
    shift: int
    start: int
    step: int


def write_once(program: Program) -> None:
    """Turn all buffers of which it can be proved into streams, in place."""
    for i, item in enumerate(program.items):
        if isinstance(item, Loop):
            _in_loop(program, i, item)


def _in_loop(program: Program, number: int, loop: Loop) -> None:
    before = [b for b in program.items[:number] if isinstance(b, Block)]
    inside = list(blocks_of([loop]))
    for block in inside:
        for op in list(block.ops):
            buffer = _written(op)
            if buffer is None or block.moves.get(buffer) is not op.outs[0]:
                continue
            start = _blank_start(program, buffer, block, before)
            if start is None or not _unseen(program, buffer, op, block, inside):
                continue
            row = _row(program, op, block, start)
            if row is not None:
                _change(op, block, start, row, _most(loop, block))


def _written(op: Op) -> Var | None:
    """The buffer of which an operation returns a copy with one row set."""
    if op.eqn.primitive.name != "scatter":
        return None
    buffer, index, update = op.ins
    if not isinstance(buffer, Var):
        return None
    dims, shape = op.eqn.params["dimension_numbers"], buffer.aval.shape
    one_row = (
        dims.inserted_window_dims == (0,)
        and dims.scatter_dims_to_operand_dims == (0,)
        and dims.update_window_dims == tuple(range(len(shape) - 1))
        and not dims.operand_batching_dims
        and index.aval.shape == (1,)
        and update.aval.shape == shape[1:]
        and shape[0] > 0
    )
    drops = op.eqn.params["mode"] == lax.GatherScatterMode.FILL_OR_DROP
    return buffer if one_row and drops else None


def _blank_start(
    program: Program, buffer: Var, writer: Block, before: list[Block]
) -> Block | None:
    """The block before the loop that assigns zeros; only the writer may assign too."""
    assigning = [b for b in blocks_of(program.items) if buffer in b.defs()]
    others = [b for b in assigning if b is not writer]
    if len(others) != 1 or others[0] not in before:
        return None
    (start,) = others
    made = [op for op in start.ops if start.moves.get(buffer) in op.outs]
    if not made or made[0].eqn.primitive.name != "broadcast_in_dim":
        return None
    (fill, *_) = made[0].ins
    return start if isinstance(fill, Lit) and _is_zero(fill.value) else None


def _is_zero(value: Any) -> bool:
    """Whether a number is the zero of blank arrays, which has no sign."""
    number = np.asarray(value)
    signed = np.issubdtype(number.dtype, np.floating) and bool(np.signbit(number))
    return not number and not signed


def _unseen(
    program: Program, buffer: Var, write: Op, writer: Block, inside: list[Block]
) -> bool:
    """Whether nobody but the write reads the buffer until the loop has ended."""
    new = write.outs[0]
    if any(buffer in b.uses() for b in inside if b is not writer):
        return False
    if any(new in b.uses() for b in blocks_of(program.items) if b is not writer):
        return False
    read: list[Any] = [a for op in writer.ops if op is not write for a in op.ins]
    read += [*write.ins[1:], *(s for d, s in writer.moves.items() if d is not buffer)]
    read += [s for r in writer.reads for s in (r.stream,)]
    read += [s for w in writer.writes for s in (w.stream, w.source)]
    read.append(writer.next.index)
    outs = [o for o in program.outs if o is new]
    return not outs and not any(a is buffer or a is new for a in read)


def _row(program: Program, op: Op, block: Block, start: Block) -> _Row | None:
    """The row that is written, if it is a counter that this block moves on."""
    found = _followed(op.ins[1], block)
    if found is None:
        return None
    counter, shift = found
    if not isinstance(counter, Var):
        return None
    after = _followed(block.moves.get(counter), block)
    begun = start.moves.get(counter)
    assigned = {b.label for b in blocks_of(program.items) if counter in b.defs()}
    if after is None or after[0] is not counter or after[1] <= 0:
        return None
    if assigned != {start.label, block.label} or not isinstance(begun, Lit):
        return None
    first, step, n = int(begun.value), after[1], op.ins[0].aval.shape[0]
    # Far from where 32 bits wrap round, in all sums that follow.
    small = 0 <= first <= _FAR and 0 <= first + shift <= _FAR
    return _Row(counter, shift, first, step) if small and n + step <= _FAR else None


def _followed(atom: Any, block: Block) -> tuple[Atom, int] | None:
    """An index as `variable on entry + constant`.

    A wrapped index (`i + n` where `i < 0`) is `i`: the counters here start at no less
    than zero and grow.
    """
    if isinstance(atom, Lit):
        return atom, 0
    maker = {o: op for op in block.ops for o in op.outs}.get(atom)
    if maker is None:
        plain = isinstance(atom, Var) and atom.aval.shape == ()
        return (atom, 0) if plain and _is_index(atom.aval) else None
    name = maker.eqn.primitive.name
    if name in _FOLLOWED and maker.outs[0].aval.size == 1:
        wide = _is_index(maker.outs[0].aval)
        return _followed(maker.ins[0], block) if wide else None
    if name == "add" and isinstance(maker.ins[1], Lit):
        inner = _followed(maker.ins[0], block)
        return None if inner is None else (inner[0], inner[1] + int(maker.ins[1].value))
    if name == "select_n" and _asks_if_negative(maker.ins[0], maker.ins[1], block):
        return _followed(maker.ins[1], block)
    return None


def _is_index(aval: Aval) -> bool:
    """A signed integer so wide that counting does not wrap it round."""
    dtype = np.dtype(aval.dtype)
    return dtype.kind == "i" and dtype.itemsize >= 4


def _asks_if_negative(which: Atom, value: Atom, block: Block) -> bool:
    for op in block.ops:
        if which in op.outs and op.eqn.primitive.name == "lt":
            low = op.ins[1]
            zero = isinstance(low, Lit) and low.value == 0
            return zero and _followed(op.ins[0], block) == _followed(value, block)
    return False


def _most(loop: Loop, block: Block) -> int | None:
    """How often the block runs at most, where that is known."""
    return loop.length if block in loop.items else None


def _change(op: Op, block: Block, start: Block, row: _Row, most: int | None) -> None:
    buffer, _, update = op.ins
    assert isinstance(buffer, Var)
    n = buffer.aval.shape[0]
    at = Var(Aval((), np.dtype(np.int32)))
    here = Position(at, n, reverse=False)
    start.moves[at] = Lit(np.int32(min(row.start + row.shift, n)), at.aval)
    block.ops.remove(op)
    del block.moves[buffer]
    last = None if most is None else row.start + row.shift + (most - 1) * row.step
    if last is None or last >= n:
        update = _guarded(block, buffer, here, update)
    block.writes.append(Write(buffer, here, update))

    def on(at: Any) -> Any:
        # It stays where no row is, so that it cannot wrap round.
        return lax.add(lax.min(at, np.int32(n)), np.int32(row.step))

    block.moves[at] = _emit(block, on, [at])


def _guarded(block: Block, buffer: Var, here: Position, update: Atom) -> Atom:
    """The row to write; past the end, what the last row holds anyway."""
    shape = buffer.aval.shape[1:]
    old = Var(update.aval)
    block.reads.append(Read(old, buffer, here))
    n = np.int32(here.length)

    def choose(at: Any, update: Any, old: Any) -> Any:
        within = lax.broadcast(lax.lt(at, n), shape)
        return lax.select(within, update, old)

    return _emit(block, choose, [here.count, update, old])


def _emit(block: Block, fun: Any, ins: list[Atom]) -> Var:
    """Code of our own at the end of a block; returns its result."""
    structs = [struct(a.aval) for a in ins]
    made: Any = jax.make_jaxpr(fun)(*structs).jaxpr
    env: dict[Any, Atom] = dict(zip(made.invars, ins, strict=True))
    equations: list[Any] = list(made.eqns)
    for eqn in equations:
        given = tuple(
            Lit(a.val, _shaped(a)) if isinstance(a, core.Literal) else env[a]
            for a in eqn.invars
        )
        moving = [isinstance(a, Var) and a.active for a in given]
        results: list[Any] = list(eqn.outvars)
        flags = outputs(eqn, moving)
        outs = tuple(Var(v.aval, a) for v, a in zip(results, flags, strict=True))
        block.ops.append(Op(eqn, given, outs))
        env.update(zip(eqn.outvars, outs, strict=True))
    found = env[made.outvars[0]]
    assert isinstance(found, Var)
    return found


def _shaped(atom: Any) -> Aval:
    return atom.aval

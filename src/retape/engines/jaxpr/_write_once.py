"""Pass 1b: a buffer that a program fills row by row becomes a stream.

Before, the `ys`-by-hand of third-party code, a register of the loop:

    L0:  b = full[n, k] inf           moves rows <- b, i <- 0
    L1:  r = scatter rows i y         moves rows <- r, i <- i + 1     (a loop)

After, one array beside the capsules, of which a step writes a row:

    L0:                               moves rows <- b, i <- 0, at <- 0
    L1:  writes rows[at] = y          moves i <- i + 1, at <- min(i + 1, n)

It is right because running a step again writes the same row again, and nobody sees a
row before it is written. Both are proved, for each buffer, from these facts; where one
fails the buffer stays a register:

- It is assigned one number, perhaps with rows set that are known in advance, once,
  outside every loop. After that only rows of it are set.
- It may have many names, in loops inside loops, but is used only under that of its
  newest version (`_names`).
- The rows that are set in loops rise: no two writes meet in a row (`_rising`). Which of
  them are set may depend on the data.
- Until the last loop that sets rows has ended nothing else reads it. After it, anything
  may.

A row outside the buffer is not written by a scatter that drops it, nor one that is set
only under a condition which fails; here that row is then written with what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.core import Tracer

from ._code import bind
from ._flatten import run_length
from ._flow import Flow
from ._growth import Growth
from ._inline import code
from ._ir import (
    Atom,
    Aval,
    Block,
    Jump,
    Label,
    Lit,
    Op,
    Position,
    Program,
    Read,
    Var,
    Write,
)
from ._names import Buffer, buffer_of
from ._rising import FAR, Rising, RowOf, last_row, rows_of
from ._row_sets import opened, row_set

_Counts = dict[tuple[Var, int, int], Var]
"""By integer, shift, and rows: the number of the row in 32 bits."""


def write_once(program: Program, constants: Sequence[Any] = ()) -> None:
    """Turn all buffers of which it can be proved into streams, in place.

    Args:
        program: The program.
        constants: The values of its last operands.
    """
    done: set[Var] = set()
    opens = _Opened()
    counts: _Counts = {}
    while True:
        view = _View(program, opens, constants)
        seeds = [s for s in view.seeds() if s not in done]
        if not seeds:
            return
        for seed in seeds:
            done.add(seed)
            found = _proved(view, seed)
            if found is not None:
                _Change(view, found, counts).make()
                # The rest is about a program that is no more.
                break


class _Opened:
    """What foreign operations are made of, looked up once."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[Op, list[Op] | None]] = {}

    def __call__(self, op: Op) -> list[Op] | None:
        if id(op) not in self.found:
            self.found[id(op)] = op, opened(op)
        return self.found[id(op)][1]


class _View:
    """A program with its foreign operations in loops opened, and its flow graph."""

    def __init__(
        self, program: Program, opens: _Opened, constants: Sequence[Any]
    ) -> None:
        self.program = program
        self.opens = opens
        last = program.operands[len(program.operands) - len(constants) :]
        self.constants = dict(zip(last, constants, strict=True))
        self.flow = Flow(program)
        self.growth = {b.label: Growth(self._ops(b)) for b in self.flow.blocks}

    def _ops(self, block: Block) -> list[Op]:
        if not self.flow.inside(block):
            return block.ops
        return [part for op in block.ops for part in self.opens(op) or [op]]

    def seeds(self) -> list[Var]:
        """Buffers of which a loop sets a row."""
        inside = [b for b in self.flow.blocks if self.flow.inside(b)]
        growths = [self.growth[b.label] for b in inside]
        found = [row_set(op, g) for g in growths for op in g.ops]
        return [r.new for r in found if r is not None]


@dataclass(frozen=True, slots=True)
class _Proved:
    """A buffer that may be a stream."""

    buffer: Buffer
    start: _Start
    rows: dict[Label, list[RowOf]]


@dataclass(frozen=True, slots=True)
class _Start:
    """What a buffer is before the loops: one number, but for some rows."""

    blank: Atom
    fill: Any
    rows: list[tuple[int, Atom]]


def _proved(view: _View, seed: Var) -> _Proved | None:
    """The buffer that a variable is a name of, if all is proved of it."""
    flow, growth = view.flow, view.growth
    buffer = buffer_of(flow, growth, seed)
    if buffer is None or seed.aval.shape[0] > FAR:
        return None
    where, _, source = buffer.birth
    start = _start(source, growth[where.label], view.constants)
    if start is None:
        return None
    rows: dict[Label, list[RowOf]] = {}
    for label, visit in buffer.visits.items():
        found = rows_of(visit.sets, growth[label])
        if found is None:
            return None
        rows[label] = found
    begun = max((row + 1 for row, _ in start.rows), default=0)
    if not Rising(flow, growth, rows, begun).holds():
        return None
    for block in buffer.writers(flow):
        for row in rows[block.label]:
            # A row beyond the last one must not be the last one.
            if row.row.clamps and not _within(view, block, row):
                return None
    return _Proved(buffer, start, rows)


def _within(view: _View, block: Block, row: RowOf) -> bool:
    """Whether it is known that no row beyond the last one is set."""
    last = last_row(view.flow, view.growth, block, row)
    return last is not None and last < row.row.old.aval.shape[0]


def _start(atom: Atom, growth: Growth, constants: Mapping[Any, Any]) -> _Start | None:
    rows: list[tuple[int, Atom]] = []
    op = growth.maker(atom)
    while op is not None:
        found = row_set(op, growth)
        if found is None:
            break
        cases = growth.cases(found.index)
        if len(cases) != 1 or cases[0].base is not None:
            return None
        row = cases[0].shift
        if not 0 <= row < atom.aval.shape[0] or row in [r for r, _ in rows]:
            return None
        rows.append((row, found.update))
        atom, op = found.old, growth.maker(found.old)
    fill = None
    if op is not None and op.eqn.primitive.name == "broadcast_in_dim":
        fill = _value(op.ins[0], growth)
    elif op is None and atom in constants:
        fill = _everywhere(constants[atom])
    return None if fill is None else _Start(atom, fill, rows)


def _everywhere(array: Any) -> Any:
    """The one number that an array is full of, else `None`."""
    if isinstance(array, Tracer) or jax.dtypes.issubdtype(
        array.dtype, jax.dtypes.extended
    ):
        return None
    numbers = np.asarray(array).reshape(-1)
    same = bool(numbers.size) and numbers.tobytes() == numbers[:1].tobytes() * len(
        numbers
    )
    return numbers[0] if same else None


def _value(atom: Atom, growth: Growth) -> Any:
    """A number that follows from what stands in the program, else `None`."""
    if isinstance(atom, Lit):
        traced = isinstance(atom.value, Tracer)
        return None if traced else np.asarray(atom.value, atom.aval.dtype)
    op = growth.maker(atom)
    if op is None or atom.aval.size != 1 or op.eqn.effects:
        return None
    ins = [_value(a, growth) for a in op.ins]
    if not ins or any(v is None for v in ins):
        return None
    with jax.ensure_compile_time_eval():
        outs = bind(op.eqn, ins)
    found = outs[op.outs.index(atom)]
    return np.asarray(found)


def _is_zero(value: Any) -> bool:
    """Whether a number is the zero of blank arrays, which has no sign."""
    number = np.asarray(value)
    signed = number.dtype.kind not in "biu" and bool(np.signbit(np.real(number)))
    return not number and not signed


class _Change:
    """A buffer made a stream."""

    def __init__(self, view: _View, proved: _Proved, counts: _Counts) -> None:
        self.view = view
        self.program = view.program
        self.flow = view.flow
        self.proved = proved
        self.names = proved.buffer.names
        some = next(iter(self.names))
        self.stream = Var(some.aval, any(v.active for v in self.names))
        self.length = int(some.aval.shape[0])
        self.counts = counts

    def make(self) -> None:
        """Change the program."""
        for block in self.flow.blocks:
            self._rename(block)
        self.program.outs = tuple(map(self._new_name, self.program.outs))
        self._begin()
        for block in self.proved.buffer.writers(self.flow):
            for row in self.proved.rows[block.label]:
                self._write(block, row)
        self._clean()

    def _new_name(self, atom: Any) -> Any:
        return self.stream if atom in self.names else atom

    def _rename(self, block: Block) -> None:
        passed = {id(op) for op in self.proved.buffer.visits[block.label].passed}
        ops: list[Op] = []
        for op in block.ops:
            parts = self.view.opens(op) if self.flow.inside(block) else None
            if parts is None or not any(id(p) in passed for p in parts):
                parts = [op]
            ops += [p for p in parts if id(p) not in passed]
        ins = [tuple(map(self._new_name, op.ins)) for op in ops]
        pairs = zip(ops, ins, strict=True)
        block.ops[:] = [o if o.ins == i else replace(o, ins=i) for o, i in pairs]
        moves = {d: s for d, s in block.moves.items() if d not in self.names}
        block.moves = {d: self._new_name(s) for d, s in moves.items()}

    # Its beginning --------------------------------------------------------------------

    def _begin(self) -> None:
        where, _, _ = self.proved.buffer.birth
        start = self.proved.start
        where.moves[self.stream] = start.blank
        if not _is_zero(start.fill):
            self.program.fills[self.stream] = start.fill
        if start.rows:
            self._first_rows(where, start.rows)

    def _first_rows(self, where: Block, rows: Sequence[tuple[int, Atom]]) -> None:
        """Write the rows that are known before the loops, in a block of their own.

        Where to write is read before a block's code, so another block has to say it.
        """
        block = Block(Label(), next=where.next)
        where.next = Jump(None, (block.label,))
        self.program.items.insert(self.program.items.index(where) + 1, block)
        self.program.length = run_length(self.program.items)
        for row, update in rows:
            at = Var(Aval((), np.dtype(np.int32)))
            where.moves[at] = Lit(np.int32(row), at.aval)
            here = Position(at, self.length, reverse=False)
            block.writes.append(Write(self.stream, here, self._as_row(block, update)))

    # Its rows -------------------------------------------------------------------------

    def _write(self, block: Block, row: RowOf) -> None:
        here = Position(self._count(row), self.length, reverse=False)
        update = self._as_row(block, row.row.update)
        asked = list(row.when)
        if asked or not _within(self.view, block, row):
            update = self._guarded(block, here, update, asked)
        block.writes.append(Write(self.stream, here, update))

    def _as_row(self, block: Block, update: Atom) -> Atom:
        shape = self.stream.aval.shape[1:]
        if update.aval.shape == shape:
            return update
        return _emit(block, lambda u: lax.reshape(u, shape), [update])

    def _guarded(
        self,
        block: Block,
        here: Position,
        update: Atom,
        asked: Sequence[tuple[Atom, bool]],
    ) -> Atom:
        """The row to write; where none is to be set, what is there anyway."""
        shape = self.stream.aval.shape[1:]
        # No derivative goes to what it replaces: that is not read, but left.
        old = Var(self.stream.aval.update(shape=shape))
        block.reads.append(Read(old, self.stream, here))
        n = np.int32(self.length)

        def choose(at: Any, update: Any, old: Any, *truths: Any) -> Any:
            sets = lax.lt(at, n)
            for truth, (_, value) in zip(truths, asked, strict=True):
                sets = lax.bitwise_and(sets, truth if value else lax.bitwise_not(truth))
            return lax.select(lax.broadcast(sets, shape), update, old)

        return _emit(block, choose, [here.count, update, old, *(a for a, _ in asked)])

    def _count(self, row: RowOf) -> Var:
        """The variable that has the number of the row on entry to the block."""
        base, shift = row.base, row.shift
        scalar = base.aval.shape == () and base.aval.dtype == np.int32
        if scalar and not shift:
            return base
        key = base, shift, self.length
        if key not in self.counts:
            self.counts[key] = at = Var(Aval((), np.dtype(np.int32)))
            for block in self.flow.defined[base]:
                source = block.moves.get(base, base)
                block.moves[at] = self._shifted(block, source, shift)
        return self.counts[key]

    def _shifted(self, block: Block, source: Atom, shift: int) -> Atom:
        """A row number in 32 bits; those beyond the last row are all one."""
        n, aval = self.length, Aval((), np.dtype(np.int32))
        if isinstance(source, Lit):
            return Lit(np.int32(min(int(source.value) + shift, n)), aval)

        def count(i: Any) -> Any:
            i = lax.reshape(i, ())
            i = lax.min(i, i.dtype.type(n)) + i.dtype.type(shift)
            return lax.convert_element_type(lax.min(i, i.dtype.type(n)), np.int32)

        return _emit(block, count, [source])

    # What is left ---------------------------------------------------------------------

    def _clean(self) -> None:
        """Remove operations that only the buffer needed."""
        flow = Flow(self.program)
        for block in flow.blocks:
            needed: set[Any] = set(block.moves.values())
            needed |= {w.source for w in block.writes} | {block.next.index}
            kept: list[Op] = []
            for op in reversed(block.ops):
                seen = any(o in needed or flow.seen_outside(o, block) for o in op.outs)
                if seen or op.eqn.effects:
                    needed |= set(op.ins)
                    kept.append(op)
            block.ops[:] = reversed(kept)


def _emit(block: Block, fun: Callable[..., Any], ins: Sequence[Atom]) -> Atom:
    """Code of our own at the end of a block; returns its result."""
    ops, (result,) = code(fun, ins)
    block.ops += ops
    return result

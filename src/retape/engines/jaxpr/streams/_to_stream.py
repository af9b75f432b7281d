"""A buffer made a stream: one array, one name, its rows written as they were set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jax import lax

from retape.engines.jaxpr.ir._flow_graph import Flow
from retape.engines.jaxpr.ir._ir import (
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
    run_length,
)
from retape.engines.jaxpr.ir._operations import code
from retape.engines.jaxpr.primitives._stop_cotangent import stop_cotangent
from retape.engines.jaxpr.streams._buffer_versions import Buffer
from retape.engines.jaxpr.streams._increasing_rows import RowOf, last_row
from retape.engines.jaxpr.streams._induction import Growth
from retape.engines.jaxpr.streams._initial_value import Start, is_zero
from retape.engines.jaxpr.streams._row_updates import opened_update, row_set

RowCounters = dict[tuple[Var, int, int], Var]
"""By integer, shift, and rows: the number of the row in 32 bits."""


class Opened:
    """The parts of third-party operations, looked up once."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[Op, list[Op] | None]] = {}

    def __call__(self, op: Op) -> list[Op] | None:
        if id(op) not in self.found:
            self.found[id(op)] = op, opened_update(op)
        return self.found[id(op)][1]


class View:
    """A program with its foreign operations in loops opened, and its flow graph."""

    def __init__(
        self, program: Program, opens: Opened, constants: Sequence[Any]
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
class Proved:
    """A buffer that may be a stream."""

    buffer: Buffer
    start: Start
    rows: dict[Label, list[RowOf]]


def in_bounds(view: View, block: Block, row: RowOf) -> bool:
    """Tell whether it is known that no row beyond the last one is set."""
    last = last_row(view.flow, view.growth, block, row)
    return last is not None and last < row.row.old.aval.shape[0]


class Promotion:
    """A buffer made a stream."""

    def __init__(self, view: View, proved: Proved, counts: RowCounters) -> None:
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
            written: list[Write] = []
            for row in self.proved.rows[block.label]:
                written.append(self._write(block, row, written))
            block.writes += written
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
        if not is_zero(start.fill):
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

    def _write(self, block: Block, row: RowOf, earlier: Sequence[Write]) -> Write:
        here = Position(self._count(row), self.length, reverse=False)
        update = self._as_row(block, row.row.update)
        asked = list(row.when)
        if asked or not in_bounds(self.view, block, row):
            update = self._guarded(block, here, update, asked, earlier)
        return Write(self.stream, here, update)

    def _as_row(self, block: Block, update: Atom) -> Atom:
        shape = self.stream.aval.shape[1:]
        if update.aval.shape == shape:
            return update
        return _append_code(block, lambda u: lax.reshape(u, shape), [update])

    def _guarded(
        self,
        block: Block,
        here: Position,
        update: Atom,
        asked: Sequence[tuple[Atom, bool]],
        earlier: Sequence[Write],
    ) -> Atom:
        """The row to write; where none is to be set, what is there anyway.

        That may be what this block has written a moment `earlier`: a row outside the
        buffer is its first or its last one here.
        """
        shape = self.stream.aval.shape[1:]
        # No derivative goes to what it replaces: that is not read, but left.
        old: Atom = Var(self.stream.aval.update(shape=shape))
        block.reads.append(Read(old, self.stream, here))
        for write in earlier:
            assert write.at is not None
            ins = [here.count, write.at.count, write.source, old]
            old = _append_code(block, self._since, ins)
        n = np.int32(self.length)

        def choose(at: Any, update: Any, old: Any, *truths: Any) -> Any:
            sets = lax.lt(at, n)
            for truth, (_, value) in zip(truths, asked, strict=True):
                sets = lax.bitwise_and(sets, truth if value else lax.bitwise_not(truth))
            return lax.select(lax.broadcast(sets, shape), update, old)

        return _append_code(
            block, choose, [here.count, update, old, *(a for a, _ in asked)]
        )

    def _since(self, at: Any, before: Any, written: Any, old: Any) -> Any:
        """The content of a row after another was written."""
        first, last = np.int32(0), np.int32(self.length - 1)
        same = lax.eq(lax.clamp(first, at, last), lax.clamp(first, before, last))
        # Its cotangent goes there from the row itself.
        return lax.select(lax.broadcast(same, old.shape), stop_cotangent(written), old)

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

        return _append_code(block, count, [source])

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


def _append_code(block: Block, fun: Callable[..., Any], ins: Sequence[Atom]) -> Atom:
    """Code of our own at the end of a block; returns its result."""
    ops, (result,) = code(fun, ins)
    block.ops += ops
    return result

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
    Lit,
    Op,
    Program,
    RowNumber,
    Var,
    Write,
)
from retape.engines.jaxpr.ir._operations import code
from retape.engines.jaxpr.streams._buffer_versions import Buffer, Start, is_zero
from retape.engines.jaxpr.streams._definitions import define, rises
from retape.engines.jaxpr.streams._row_updates import RowSet, opened_update, row_set


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
        self.made = define(self.flow, self._ops)

    def _ops(self, block: Block) -> list[Op]:
        if not self.flow.inside(block):
            return block.ops
        return [part for op in block.ops for part in self.opens(op) or [op]]

    def seeds(self) -> list[Var]:
        """Buffers of which a loop sets a row."""
        inside = [b for b in self.flow.blocks if self.flow.inside(b)]
        made = [self.made[b.label] for b in inside]
        found = [row_set(op, m) for m in made for op in m.ops]
        return [r.new for r in found if r is not None]


@dataclass(frozen=True, slots=True)
class Proved:
    """A buffer that may be a stream."""

    buffer: Buffer
    start: Start


@dataclass(frozen=True, slots=True)
class NumberedRow:
    """Where a block computes the number of a row."""

    block: Block
    row: RowSet
    length: int
    number: RowNumber


class Promotion:
    """A buffer made a stream."""

    def __init__(self, view: View, proved: Proved, places: list[NumberedRow]) -> None:
        self.view = view
        self.program = view.program
        self.flow = view.flow
        self.proved = proved
        self.names = proved.buffer.names
        some = next(iter(self.names))
        self.stream = Var(some.aval, any(v.active for v in self.names))
        self.length = int(some.aval.shape[0])
        self.places = places

    def make(self) -> None:
        """Change the program."""
        for block in self.flow.blocks:
            self._rename(block)
        self.program.outs = tuple(map(self._new_name, self.program.outs))
        self._begin()
        for block in self.proved.buffer.writers(self.flow):
            self._write(block, self.proved.buffer.visits[block.label].sets)
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
        self._write(where, start.rows)

    # Its rows -------------------------------------------------------------------------

    def _write(self, block: Block, rows: Sequence[RowSet]) -> None:
        """Write rows at the end of a block, where it set them."""
        for row in rows:
            update = self._as_row(block, row.update)
            block.writes.append(Write(self.stream, self._number(block, row), update))

    def _as_row(self, block: Block, update: Atom) -> Atom:
        shape = self.stream.aval.shape[1:]
        if update.aval.shape == shape:
            return update
        return _append_code(block, lambda u: lax.reshape(u, shape), [update])

    def _number(self, block: Block, row: RowSet) -> RowNumber:
        """The number of the row; what is said already is not said again."""
        made = self.view.made[block.label]
        for place in self.places:
            if place.block is block and place.length == self.length:
                other = place.row
                alike = (other.when, other.clamps) == (row.when, row.clamps)
                if alike and made.same_row(other.index, row.index):
                    return place.number
        known = made.number(row.index)
        inside = known is not None and 0 <= known.item() < self.length
        if known is not None and inside and not row.when:
            at: Atom = Lit(np.int32(known.item()), Aval((), np.dtype(np.int32)))
        else:
            truths = [atom for atom, _ in row.when]
            at = _append_code(block, self._where(row), [row.index, *truths])
        grows = not row.clamps and rises(made, block, row.index)
        number = RowNumber(at, self.length, grows)
        self.places.append(NumberedRow(block, row, self.length, number))
        return number

    def _where(self, row: RowSet) -> Callable[..., Any]:
        """The number of a row that is set, that of no row where none is."""
        n, values = self.length, [value for _, value in row.when]

        def number(index: Any, *truths: Any) -> Any:
            index = lax.reshape(index, ())
            if index.dtype.itemsize < 4:
                index = lax.convert_element_type(index, np.int32)
            first, end = index.dtype.type(0), index.dtype.type(n)
            if row.clamps:
                index = lax.clamp(first, index, index.dtype.type(n - 1))
            sets = lax.bitwise_and(lax.ge(index, first), lax.lt(index, end))
            for truth, value in zip(truths, values, strict=True):
                truth = lax.reshape(truth, ())
                sets = lax.bitwise_and(sets, truth if value else lax.bitwise_not(truth))
            return lax.select(
                sets, lax.convert_element_type(index, np.int32), np.int32(n)
            )

        return number

    # What is left ---------------------------------------------------------------------

    def _clean(self) -> None:
        """Remove operations that only the buffer needed."""
        flow = Flow(self.program)
        for block in flow.blocks:
            needed: set[Any] = set(block.moves.values())
            needed |= {w.source for w in block.writes} | {block.next.index}
            needed |= {*block.row_numbers()}
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

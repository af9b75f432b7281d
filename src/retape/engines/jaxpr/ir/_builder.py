"""Writing blocks: values, operations, moves and loops, one after the other.

What is written stands in the current block. A value that another block made is read
there as it is, unless it is cheap: a row of a stream is read, and numbers that are made
up or moved are made again, in every block that uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from retape.engines.jaxpr.analysis._activity import outputs
from retape.engines.jaxpr.ir._ir import (
    Atom,
    Aval,
    Block,
    Item,
    Jump,
    Label,
    Lit,
    Loop,
    Op,
    Position,
    Read,
    Var,
)
from retape.engines.jaxpr.jaxprs._primitive_table import Again, traits


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """The row of a stream that belongs to the current iteration: read when used."""

    stream: Var
    at: Position
    aval: Aval
    active: bool


Source = Atom | Row


@dataclass(frozen=True, slots=True)
class LoopShape:
    """A loop, in the shape that every loop is given."""

    carry: Sequence[Var]
    init: Sequence[Source]
    first: Atom | None
    """Whether to go in at all; `None` if there is always a first turn."""
    turn: Callable[[], tuple[Sequence[Source], Atom]]
    """Writes a turn; returns the next carry, and whether to go on."""


class Blocks:
    """The blocks of a program, as far as they are written.

    Attributes:
        items: What is written, at the level of the current loop.
        block: The current block.
        in_loop: Whether that is in a loop.
        operands: Inputs, and constants that are arrays.
        constants: The latter, with their values.
    """

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.in_loop = False
        self.constants: dict[Var, Any] = {}
        self.operands: set[Var] = set()
        self.block = self.open(Label())
        self._origin: dict[Var, Block] = {}
        self._recipe: dict[Var, Op] = {}
        self._copies: dict[tuple[Block, Any], Var] = {}

    # Control -----------------------------------------------------------------

    def open(self, label: Label) -> Block:
        """Begin a new block."""
        self.block = Block(label)
        self.items.append(self.block)
        return self.block

    def jump(self, index: Source | None, *targets: Label) -> None:
        """End the current block."""
        chosen = None if index is None else self.here(index)
        self.block.next = Jump(chosen, targets)

    def assign(self, dst: Sequence[Var], src: Sequence[Source]) -> None:
        """Parallel moves at the end of the current block."""
        for d, s in zip(dst, src, strict=True):
            atom = self.here(s)
            if atom is not d:
                self.block.moves[d] = atom

    def loop(self, turns: LoopShape, length: int | None) -> None:
        """A rotated loop: its test stands before it, and at its end again."""
        top, after = Label(), Label()
        self.assign(turns.carry, turns.init)
        if turns.first is None:
            self.jump(None, top)
        else:
            self.jump(turns.first, after, top)
        with self._inside(length):
            self.open(top)
            outs, again = turns.turn()
            self.assign(turns.carry, outs)
            self.jump(again, after, top)
        self.open(after)

    @contextmanager
    def _inside(self, length: int | None) -> Iterator[None]:
        """Blocks opened inside stand in a loop."""
        outer, self.items = self.items, []
        around, self.in_loop = self.in_loop, True
        yield
        self.in_loop = around
        outer.append(Loop(self.items, length))
        self.items = outer

    # Values ------------------------------------------------------------------

    def constant(self, value: Any, aval: Aval) -> Atom:
        """A constant: in the code if it is one number, else an operand."""
        if np.ndim(value) == 0 and not _extended(aval):
            return Lit(value, aval)
        var = Var(aval)
        self.constants[var] = value
        self.operands.add(var)
        return var

    def operation(
        self, eqn: Any, ins: Sequence[Source], active: Sequence[bool]
    ) -> list[Var]:
        """One equation that stays whole."""
        atoms = tuple(self.here(a) for a in ins)
        flags = outputs(eqn, active)
        outs = [Var(v.aval, a) for v, a in zip(eqn.outvars, flags, strict=True)]
        op = Op(eqn, atoms, tuple(outs))
        self.block.ops.append(op)
        for out in outs:
            self._origin[out] = self.block
        # Made again as long as nothing but operands, literals and one another goes in
        # and no derivative comes out: XLA fuses it into what reads it.
        made_up = traits(eqn).again >= Again.MADE_UP and not outs[0].active
        if made_up and all(self._is_free(a) for a in atoms):
            self._recipe[outs[0]] = op
        return outs

    def here(self, value: Source) -> Atom:
        """An atom that can be used in the current block."""
        if isinstance(value, Lit) or value in self.operands:
            return value
        if isinstance(value, Row):
            return self._once(value, lambda: self._read(value))
        op = self._recipe.get(value)
        if op is None or self._origin[value] is self.block:
            return value
        return self._once(value, lambda: self._again(op))

    def _once(self, key: Source, make: Callable[[], Var]) -> Var:
        found = self._copies.get((self.block, key))
        if found is None:
            found = self._copies[self.block, key] = make()
        return found

    def _read(self, row: Row) -> Var:
        out = Var(row.aval, row.active)
        # The stream itself is never recomputed: its cotangent is gathered row by row.
        self.block.reads.append(Read(out, row.stream, row.at))
        self._origin[out] = self.block
        return out

    def _again(self, op: Op) -> Var:
        ins = tuple(self.here(a) for a in op.ins)
        out = Var(op.outs[0].aval, op.outs[0].active)
        self.block.ops.append(Op(op.eqn, ins, (out,)))
        self._origin[out] = self.block
        return out

    def _is_free(self, atom: Atom) -> bool:
        return isinstance(atom, Lit) or atom in self.operands or atom in self._recipe


def _extended(aval: Aval) -> bool:
    return jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended)

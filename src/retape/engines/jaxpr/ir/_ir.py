"""The intermediate form: a program as blocks over variables, with its loops kept.

A jaxpr is pure, so the state of an interrupted run is nothing but the values that are
still needed. This form makes the places where a run can be interrupted explicit. A
`Block` is straight-line code; running one is one *step*. Blocks read and write
`Var`s, which (unlike a jaxpr's variables) may be assigned by several blocks: the carry
of a loop is one. The block ends with parallel `moves` and says which block is next.

The nesting of loops is kept as a tree (`Loop`), because compiled code is fast only if
a hot inner loop stays a native loop. Blocks are numbered in program order, so that
the blocks of a loop are a range `lo..hi` and "the program counter is inside this loop"
is two comparisons. The number after the last block means that the run has ended.

An array that a `scan` reads or writes one row at a time is a *stream*: a block `Read`s
a row before its code and `Write`s a row after it, so that neither the code nor its
derivative ever handles the whole array.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax.core import ShapedArray as Aval

from retape.engines.jaxpr.jaxprs._evaluate import bind

_serial = itertools.count()


@dataclass(frozen=True, slots=True, eq=False)
class Var:
    """A variable: a place for a value of one shape and type."""

    aval: Aval
    active: bool = False
    """Whether a derivative flows through it."""
    serial: int = field(default_factory=lambda: next(_serial))

    def __repr__(self) -> str:
        return f"v{self.serial}"


@dataclass(frozen=True, slots=True, eq=False)
class Lit:
    """A constant that stands in the code itself."""

    value: Any
    aval: Aval

    def __repr__(self) -> str:
        return f"{self.value!r}"


Atom = Var | Lit


@dataclass(frozen=True, slots=True)
class Op:
    """`outs = eqn(ins)`: one equation of the user's program, renamed.

    One of our own (`streams/_row_loop`) has the parameter `own`: it runs and is
    differentiated by what that says.
    """

    eqn: Any
    ins: tuple[Atom, ...]
    outs: tuple[Var, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """The row of a stream that belongs to iteration `count` of `length`."""

    count: Var
    length: int
    reverse: bool

    def row(self, count: Any) -> Any:
        """The row number, from the value of `count`."""
        return np.int32(self.length - 1) - count if self.reverse else count


@dataclass(frozen=True, slots=True)
class RowNumber:
    """The row of a stream that a block's own code says; from `length` on there is none.

    Such rows are written in any order, and again. So the way back *takes* a row's
    cotangent, the last write first: what wrote the row before gets none of it.
    """

    index: Atom
    length: int
    rises: bool = False
    """Whether it grows with each trip of the loop that the block is."""

    def row(self, numbers: Mapping[Var, Any]) -> Any:
        """The row number, from what the code computed."""
        at = self.index
        return numbers[at] if isinstance(at, Var) else np.int32(at.value)


@dataclass(frozen=True, slots=True)
class Read:
    """`out = stream[row]`, done before a block's code."""

    out: Var
    stream: Var
    at: Position


@dataclass(frozen=True, slots=True)
class Write:
    """`stream[row] = source`, done after a block's code.

    Without a position the source is the stream itself, with rows written by the code.
    """

    stream: Var
    at: Position | RowNumber | None
    source: Atom

    @property
    def number(self) -> Atom | None:
        """What says the row, if the block's code does."""
        return self.at.index if isinstance(self.at, RowNumber) else None


@dataclass(frozen=True, slots=True, eq=False)
class Label:
    """A place to jump to: stands for a block until the blocks are numbered."""

    serial: int = field(default_factory=lambda: next(_serial))

    def __repr__(self) -> str:
        return f"L{self.serial}"


@dataclass(frozen=True, slots=True)
class Jump:
    """Go on at `targets[index]` (clipped, as `lax.switch` does)."""

    index: Atom | None
    targets: tuple[Label, ...]


@dataclass(slots=True, eq=False)
class Block:
    """Straight-line code between two places where the run can be interrupted."""

    label: Label
    reads: list[Read] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    moves: dict[Var, Atom] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    next: Jump = field(default_factory=lambda: Jump(None, ()))

    def uses(self) -> set[Var]:
        """Variables whose value on entry matters."""
        inner = {o for op in self.ops for o in op.outs} | {r.out for r in self.reads}
        read: list[Atom] = [a for op in self.ops for a in op.ins]
        read += [a for r in self.reads for a in (r.stream, r.at.count)]
        read += self.moves.values()
        # Writing a row keeps the other rows, so the stream is read too.
        read += [a for w in self.writes for a in (w.stream, w.source)]
        read += [w.at.count for w in self.writes if isinstance(w.at, Position)]
        read += self.row_numbers()
        if self.next.index is not None:
            read.append(self.next.index)
        return {a for a in read if isinstance(a, Var)} - inner

    def row_numbers(self) -> list[Var]:
        """What the code computes to say where rows are written, each once."""
        numbers = dict.fromkeys(w.number for w in self.writes)
        return [n for n in numbers if isinstance(n, Var)]

    def defs(self) -> set[Var]:
        """Variables that it assigns, for other blocks to see if they are live."""
        inner = {o for op in self.ops for o in op.outs} | {r.out for r in self.reads}
        return inner | set(self.moves) | {w.stream for w in self.writes}


@dataclass(slots=True, eq=False)
class Loop:
    """The body of a loop whose test stands at the end (and before it, outside)."""

    items: list[Item]
    length: int | None = None
    """Trip count, where the program fixes it."""


Item = Block | Loop


@dataclass(slots=True, eq=False)
class Program:
    """A whole program: operands are read-only, outputs are read at the end."""

    operands: tuple[Var, ...]
    items: list[Item]
    outs: tuple[Atom, ...]
    length: int | None
    """Number of steps of a run, where the program fixes it."""
    fills: dict[Var, Any] = field(default_factory=dict)
    """The initial value of each element of a stream, where it is not zero."""
    written: Var = field(default_factory=lambda: Var(Aval((), np.dtype(np.bool_))))
    """A truth that stands beside the operands: whether every row has been written."""

    @property
    def given(self) -> frozenset[Var]:
        """Variables that no block assigns."""
        return frozenset((*self.operands, self.written))


def blocks_of(items: list[Item]) -> Iterator[Block]:
    """All blocks in program order."""
    for item in items:
        if isinstance(item, Loop):
            yield from blocks_of(item.items)
        else:
            yield item


def count_loops(items: list[Item]) -> int:
    """How many loops there are, those inside loops included."""
    return sum(1 + count_loops(i.items) for i in items if isinstance(i, Loop))


def loops_around(items: list[Item], depth: int = 0) -> dict[Label, int]:
    """How many loops stand around each block."""
    found: dict[Label, int] = {}
    for item in items:
        if isinstance(item, Loop):
            found |= loops_around(item.items, depth + 1)
        else:
            found[item.label] = depth
    return found


def run_length(items: list[Item]) -> int | None:
    """Number of steps of one run, if no choice depends on a value."""
    total = 0
    for item in items:
        if isinstance(item, Loop):
            inner = run_length(item.items)
            if inner is None or item.length is None:
                return None
            total += item.length * inner
        elif item.next.index is not None and len(item.next.targets) > 1:
            if not _ends_counted_loop(item, items):
                return None
            total += 1
        else:
            total += 1
    return total


def _ends_counted_loop(block: Block, items: list[Item]) -> bool:
    """True if the choice at a block's end is the test of the counted loop around it.

    `run_length` reaches a loop's last block only through that loop, whose own length it
    checks; every other two-way choice is a `cond` or the entry of a `while`.
    """
    first = items[0]
    assert isinstance(first, Block)
    return block is items[-1] and block.next.targets[1:] == (first.label,)


def evaluate_ops(
    ops: list[Op], env: dict[Var, Any], ruled: bool
) -> Callable[[Atom], Any]:
    """Evaluate operations in order, into `env`; what reads an atom's value then.

    Args:
        ops: The operations.
        env: The values of the variables that they start from.
        ruled: Whether JAX is to differentiate: operations of our own have rules.
    """

    def read(atom: Atom) -> Any:
        return env[atom] if isinstance(atom, Var) else atom.value

    for op in ops:
        found = op_results(op, [read(a) for a in op.ins], ruled)
        env.update(zip(op.outs, found, strict=True))
    return read


def op_results(op: Op, values: list[Any], ruled: bool) -> list[Any]:
    """Evaluate one operation."""
    own = op.eqn.params.get("own")
    if own is None:
        return bind(op.eqn, values)
    # With its rule it has no forward mode, so that the primal is run without.
    return own.ruled(*values) if ruled else own.run(*values)

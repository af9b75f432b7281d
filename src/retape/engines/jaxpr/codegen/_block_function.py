"""Make each block a pure function over its locations, as a jaxpr.

    (whole inputs, rows read)  ->  (values assigned, rows to write, next block)

Only assignments that somebody still needs are computed: the jaxpr is cleaned of dead
code. A value that is handed on to another variable in the same place (into an inner
loop, or out of it) is not touched. The same jaxpr is what `codegen/_linearize`
differentiates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from retape.engines.jaxpr.codegen._allocate import Layout, numbering
from retape.engines.jaxpr.ir._flow_graph import Liveness, whole_defs
from retape.engines.jaxpr.ir._ir import (
    Atom,
    Aval,
    Block,
    Item,
    Label,
    Position,
    Program,
    Read,
    RowNumber,
    Var,
    Write,
    evaluate_ops,
)
from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._evaluate import dce
from retape.engines.jaxpr.jaxprs._row_ops import chosen_row, row, take_row
from retape.engines.jaxpr.jaxprs._scalar_ops import where
from retape.engines.jaxpr.jaxprs._subprogram import slice_between, traced_together


@dataclass(frozen=True, eq=False)
class Code:
    """One block as a function from places to places."""

    number: int
    ins: tuple[Var, ...]
    reads: tuple[Read, ...]
    outs: tuple[Var, ...]
    writes: tuple[Write, ...]
    numbers: tuple[Var, ...]
    """Computed numbers of rows that are written."""
    jaxpr: core.ClosedJaxpr
    """`(*ins, *rows) -> (*outs, *rows, *numbers, next)`; with whole streams as rows."""
    once: bool
    """Whether it stands outside every loop, so that it runs at most once."""
    ruled: core.ClosedJaxpr
    """The same jaxpr for JAX to differentiate: operations of our own have rules."""

    @property
    def filled(self) -> frozenset[Var]:
        """Streams that the code itself writes rows of."""
        return frozenset(w.stream for w in self.writes if w.at is None)

    def counters(self) -> list[Var]:
        """Integers by which rows are read and written."""
        places = [a.at for a in (*self.reads, *self.writes)]
        return list(dict.fromkeys(p.count for p in places if isinstance(p, Position)))

    @cached_property
    def placing(self) -> core.ClosedJaxpr:
        """`(*ins, *rows) -> numbers`: where rows are written, and nothing else."""
        inner, n = self.jaxpr.jaxpr, len(self.outs) + len(self.writes)
        return slice_between(
            self.jaxpr, inner.invars, inner.outvars[n : n + len(self.numbers)]
        )

    @property
    def taken(self) -> tuple[Var, ...]:
        """Streams whose rows give up their cotangents where they are written."""
        placed = [w.stream for w in self.writes if w.number is not None]
        return tuple(dict.fromkeys(v for v in placed if v.active))

    def results(self, outs: Sequence[Any]) -> tuple[Sequence[Any], dict[Var, Any]]:
        """What the code returned: values and rows; and the numbers of the rows."""
        n = len(self.outs) + len(self.writes)
        numbers = outs[n : n + len(self.numbers)]
        return outs[:n], dict(zip(self.numbers, numbers, strict=True))


def encode(program: Program, layout: Layout, live: Liveness) -> dict[Label, Code]:
    """The code of every block."""
    number = numbering(program.items)
    functions: list[_Function] = []
    for block, depth in _with_depth(program.items, 0):
        after = live.exit[block.label] | live.lasting
        outs = whole_defs(block) & after - _handed_on(block, layout)
        functions.append(_Function.of(block, outs, number, depth == 0))
    jaxprs = map(dce, traced_together([(f.run, f.types()) for f in functions]))
    return {f.block.label: f.code(j) for f, j in zip(functions, jaxprs, strict=True)}


def _with_depth(items: list[Item], depth: int) -> list[tuple[Block, int]]:
    found: list[tuple[Block, int]] = []
    for item in items:
        if isinstance(item, Block):
            found.append((item, depth))
        else:
            found += _with_depth(item.items, depth + 1)
    return found


def _handed_on(block: Block, layout: Layout) -> set[Var]:
    """Variables that are given what their place holds already."""
    where = layout.where
    made = whole_defs(block) - set(block.moves) | {w.stream for w in block.writes}
    return {
        v
        for v, source in block.moves.items()
        if isinstance(source, Var)
        and v in where
        and where[v] == where.get(source)
        and v.active == source.active
        and made.isdisjoint((v, source))
    }


@dataclass(frozen=True, slots=True, eq=False)
class _Function:
    """A block as a Python function, to be traced."""

    block: Block
    ins: tuple[Var, ...]
    outs: tuple[Var, ...]
    number: int
    targets: np.ndarray
    """The numbers of the blocks that may be next."""
    once: bool

    @classmethod
    def of(
        cls, block: Block, assigned: set[Var], number: dict[Label, int], once: bool
    ) -> _Function:
        outs = tuple(sorted(assigned, key=lambda v: v.serial))
        ins = tuple(sorted(_plain_uses(block, assigned), key=lambda v: v.serial))
        end = len(number)
        targets = np.array([number[t] for t in block.next.targets] or [end], np.int32)
        return cls(block, ins, outs, number[block.label], targets, once)

    def types(self) -> list[jax.ShapeDtypeStruct]:
        rows = (r.out for r in self.block.reads)
        return [struct(v.aval) for v in (*self.ins, *rows)]

    def run(self, *values: Any, ruled: bool = False) -> list[Any]:
        block = self.block
        given = [*self.ins, *(r.out for r in block.reads)]
        env: dict[Var, Any] = dict(zip(given, values, strict=True))
        read = evaluate_ops(block.ops, env, ruled)
        moved = ((read(block.moves.get(v, v)), v.aval) for v in self.outs)
        rows = ((read(w.source), _row_aval(w)) for w in block.writes)
        return [
            *(_exactly_typed(*each) for each in (*moved, *rows)),
            *map(read, block.row_numbers()),
            _next(block, self.targets, read),
        ]

    def code(self, jaxpr: core.ClosedJaxpr) -> Code:
        block, ruled = self.block, jaxpr
        if any("own" in op.eqn.params for op in block.ops):
            ruled = dce(jax.make_jaxpr(partial(self.run, ruled=True))(*self.types()))
        return Code(
            number=self.number,
            ins=self.ins,
            reads=tuple(block.reads),
            outs=self.outs,
            writes=tuple(block.writes),
            numbers=tuple(block.row_numbers()),
            jaxpr=jaxpr,
            once=self.once,
            ruled=ruled,
        )


def take_cotangents(
    code: Code,
    active_outs: Sequence[int],
    numbers: Mapping[Var, Any],
    held: dict[Var, Any],
    ok: Any = None,
) -> dict[int, Any]:
    """Cotangents of the rows that a block writes where its code says, by their outputs.

    Args:
        code: The block.
        active_outs: Positions among `(*outs, *rows)` that have a cotangent.
        numbers: The values of `code.numbers`.
        held: Cotangents of streams; what is taken is zero there afterwards.
        ok: A truth: if it is false, nothing is taken, from a row that the program
            names either.
    """
    found: dict[int, Any] = {}
    for j, write in reversed([*enumerate(code.writes, len(code.outs))]):
        if not isinstance(write.at, RowNumber) or write.stream not in held:
            continue
        at = chosen_row(ok, write.at.row(numbers))
        value, held[write.stream] = take_row(held[write.stream], at)
        if j in active_outs:
            found[j] = value
    return found


def _plain_uses(block: Block, assigned: set[Var]) -> set[Var]:
    """Variables read whole by the code (not only row by row, nor as a row number)."""
    inner = {o for op in block.ops for o in op.outs} | {r.out for r in block.reads}
    read: list[Atom] = [a for op in block.ops for a in op.ins]
    read += (source for v, source in block.moves.items() if v in assigned)
    read += [w.source for w in block.writes]
    read += block.row_numbers()
    if block.next.index is not None:
        read.append(block.next.index)
    return {a for a in read if isinstance(a, Var)} - inner


def _next(block: Block, targets: np.ndarray, read: Any) -> Any:
    if len(targets) == 1:
        return jnp.asarray(targets[0])
    assert block.next.index is not None
    index = lax.convert_element_type(read(block.next.index), np.int32)
    if len(targets) == 2:
        return where(index > 0, targets[1], targets[0])
    return row(
        jnp.asarray(targets), lax.clamp(np.int32(0), index, np.int32(len(targets) - 1))
    )


def _row_aval(write: Write) -> Aval:
    aval = write.stream.aval
    return aval if write.at is None else aval.update(shape=aval.shape[1:])


def _exactly_typed(value: Any, aval: Aval) -> Any:
    """The value with exactly this type: loops refuse a carry that is weakly typed."""
    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended):
        return value
    return lax.convert_element_type(value, aval.dtype)

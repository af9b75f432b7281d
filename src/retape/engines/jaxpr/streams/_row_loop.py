"""An inner loop that does no more than write rows, as one operation of a step.

A solver that saves its solution at given times has such a loop in its step: it writes
as many interpolated rows into a stream as fall into the step.

    while times[k] <= t:   ys[k] = interpolate(slopes, times[k]);   k = k + 1

From trip to trip it carries integers and the like, nothing that a derivative flows
through. So its trips are independent but for those, and their cotangents are sums:
backwards the loop is run again *in the same direction*, from the same integers; each
trip pulls the cotangents of its rows back to what the loop reads, and adds them up.
That needs what the loop read and the integers at its beginning, however often it runs.

    going, k, slopes, ys          ->  ys                       `run`
    going, k, slopes, d ys        ->  d slopes = sum of trips  `_Backwards`

Once all rows are written they need not be written again, whenever a step is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core

from retape.engines.jaxpr.ir._ir import Block, Read, Var, Write, evaluate_ops
from retape.engines.jaxpr.jaxprs._avals import blank, struct
from retape.engines.jaxpr.jaxprs._evaluate import dce_inputs
from retape.engines.jaxpr.jaxprs._row_ops import put, row
from retape.engines.jaxpr.xla._scalar_guards import evaluate_guarded

rows_p = core.Primitive("retape_rows")
rows_p.multiple_results = True
Values = dict[Var, Any]


@rows_p.def_abstract_eval
def _row_loop_avals(*avals: Any, own: RowLoop) -> list[Any]:
    return list(avals[len(avals) - len(own.streams) :])


@dataclass(frozen=True, eq=False)
class RowLoop:
    """The loop, with its test at the end of the body.

    Its operands are whether it begins at all, whether its rows are written already,
    then the values of `carry`, `given` and `streams`; its results are the streams.
    """

    block: Block
    """The body."""
    carry: tuple[Var, ...]
    """Variables that it carries from trip to trip, none of them active."""
    given: tuple[Var, ...]
    """Variables that it reads and does not assign."""
    streams: tuple[Var, ...]
    """Streams that it writes rows of."""

    @property
    def reads(self) -> list[Read]:
        """The rows that it reads of what it does not write."""
        return [r for r in self.block.reads if r.stream not in self.streams]

    @property
    def old(self) -> list[Read]:
        """The rows that it reads of its own streams, to leave them as they are."""
        return [r for r in self.block.reads if r.stream in self.streams]

    @cached_property
    def trip(self) -> _TripPart:
        """One trip: whether to go on, the carry, and the rows to write."""
        return _trace_part(self.ins(), self._trip)

    @cached_property
    def count(self) -> _TripPart:
        """One trip without its rows."""
        n = 1 + len(self.carry)
        return _trace_part(self.ins(), lambda env: self._trip(env)[:n])

    def ins(self) -> list[Var]:
        """The variables that a trip starts from."""
        return [*self.carry, *self.given, *(r.out for r in self.block.reads)]

    def _trip(self, env: Values, ruled: bool = False) -> list[Any]:
        read = evaluate_ops(self.block.ops, dict(env), ruled)
        assert self.block.next.index is not None
        again = lax.convert_element_type(read(self.block.next.index), np.int32) > 0
        moved = [read(self.block.moves.get(v, v)) for v in self.carry]
        pairs = zip(moved, self.carry, strict=True)
        rows = [
            lax.convert_element_type(read(w.source), w.source.aval.dtype)
            for w in self.block.writes
        ]
        return [again, *(_firm(m, v) for m, v in pairs), *rows]

    # Forwards ------------------------------------------------------------------------

    @property
    def counting(self) -> list[Var]:
        """The variables among `given` that its counting reads."""
        read = {*self.count.ins, *(v for r in self.reads for v in _access(r))}
        return [v for v in self.given if v in read]

    def counted(self, *operands: Any) -> list[Any]:
        """The carry behind the loop, from that before it and what counting reads."""
        going, env = self._begun(operands, self.counting)

        def body(state: list[Any]) -> list[Any]:
            inner = env | dict(zip(self.carry, state[1:], strict=True))
            return self.count(inner | self._rows(inner, self.reads), state[0])

        start = [going, *(env[v] for v in self.carry)]
        return lax.while_loop(lambda s: s[0], body, start)[1:]

    def run(self, *operands: Any) -> list[Any]:
        """The streams with the rows of all trips written."""
        n = len(operands) - len(self.streams)
        first, written, *values = operands[:n]
        going, env = self._begun([first, *values], self.given)
        m, changed = 1 + len(self.carry), [*self.carry, *self.streams]

        def body(state: list[Any]) -> list[Any]:
            inner = env | dict(zip(changed, state[1:], strict=True))
            found = self.trip(inner | self._rows(inner, self.block.reads), state[0])
            for write, value in zip(self.block.writes, found[m:], strict=True):
                at = row_at(write, inner)
                inner[write.stream] = put(inner[write.stream], value, at)
            return [*found[:m], *(inner[s] for s in self.streams)]

        going &= ~lax.convert_element_type(written, np.bool_)
        start = [going, *(env[v] for v in self.carry), *operands[n:]]
        return lax.while_loop(lambda s: s[0], body, start)[m:]

    def _begun(
        self, operands: Sequence[Any], given: Sequence[Var]
    ) -> tuple[Any, Values]:
        going, *values = operands
        variables = [*self.carry, *given]
        pairs = zip(variables, values, strict=True)
        first = lax.convert_element_type(going, np.int32) > 0
        return first, {v: _firm(value, v) for v, value in pairs}

    def _rows(self, env: Values, reads: Sequence[Read]) -> Values:
        return {r.out: row(env[r.stream], row_at(r, env)) for r in reads}

    # Backwards -----------------------------------------------------------------------

    def ruled(self, *operands: Any) -> list[Any]:
        """The same as `run`, for JAX to differentiate."""
        backwards = _Backwards(self)

        @jax.custom_vjp
        def rows(*operands: Any) -> list[Any]:
            return self.run(*operands)

        def forwards(*operands: Any) -> tuple[list[Any], list[Any]]:
            # The way back goes on trips whose rows are written, too.
            kept = [operands[0], *(operands[2 + i] for i in backwards.kept)]
            return self.run(*operands), kept

        def back(kept: list[Any], cotangents: list[Any]) -> tuple[Any, ...]:
            found = backwards(kept, cotangents)
            given = [found.get(v) for v in (*self.carry, *self.given)]
            # What was in the streams before is not read, but left.
            return (None, None, *given, *([None] * len(self.streams)))

        rows.defvjp(forwards, back)
        return rows(*operands)


class _Backwards:
    """The sum of the pullbacks of all trips."""

    def __init__(self, loop: RowLoop) -> None:
        self.loop = loop
        self.active = [v for v in loop.given if v.active]
        self.writes = [w for w in loop.block.writes if w.stream.active]
        self.seeds = {w: Var(w.source.aval.to_tangent_aval()) for w in self.writes}
        self.pull = _trace_part([*loop.ins(), *self.seeds.values()], self._pulled)
        needed = set(self.pull.ins)
        for access in (*loop.reads, *self.writes):
            needed |= _access(access)
        kept = [i for i, v in enumerate(loop.given) if v in needed]
        self.kept = [*range(len(loop.carry)), *(len(loop.carry) + i for i in kept)]
        """Which values the loop needs again, of its carry and of what it is given."""
        self.given = [loop.given[i] for i in kept]

    def _pulled(self, env: Values) -> list[Any]:
        """One trip: whether to go on, the carry, and cotangents of what is given."""
        m = 1 + len(self.loop.carry)

        def rows(active: list[Any]) -> tuple[list[Any], list[Any]]:
            inner = env | dict(zip(self.active, active, strict=True))
            found = self.loop._trip(inner, ruled=True)
            pairs = zip(self.loop.block.writes, found[m:], strict=True)
            return [v for w, v in pairs if w.stream.active], found[:m]

        _, pull, rest = jax.vjp(rows, [env[v] for v in self.active], has_aux=True)
        (found,) = pull([env[self.seeds[w]] for w in self.writes])
        return [*rest, *found]

    def __call__(self, kept: Sequence[Any], cotangents: Sequence[Any]) -> Values:
        """The cotangents of what the loop is given, from those of its streams."""
        loop, m = self.loop, 1 + len(self.loop.carry)
        going, *values = kept
        env = dict(zip([*loop.carry, *self.given], values, strict=True))
        streams = dict(zip(loop.streams, cotangents, strict=True))
        # Rows that are left as they are: no cotangent goes by what they hold.
        old = {r.out: blank(r.out.aval) for r in loop.old}

        def body(state: list[Any]) -> list[Any]:
            inner = env | old | dict(zip(loop.carry, state[1:m], strict=True))
            inner |= loop._rows(inner, loop.reads)
            for write, seed in self.seeds.items():
                inner[seed] = row(streams[write.stream], row_at(write, inner))
            found = self.pull(inner, state[0])
            sums = zip(state[m:], found[m:], strict=True)
            return [*found[:m], *(a + b for a, b in sums)]

        zeros = [blank(v.aval.to_tangent_aval()) for v in self.active]
        first = lax.convert_element_type(going, np.int32) > 0
        start = [first, *(env[v] for v in loop.carry), *zeros]
        found = lax.while_loop(lambda s: s[0], body, start)[m:]
        return dict(zip(self.active, found, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class _TripPart:
    """Code of one trip, as a function of the variables that it needs."""

    ins: tuple[Var, ...]
    jaxpr: core.ClosedJaxpr

    def __call__(self, env: Values, truth: Any) -> list[Any]:
        return evaluate_guarded(self.jaxpr, [env[v] for v in self.ins], truth)


def _trace_part(ins: Sequence[Var], fun: Callable[[Values], list[Any]]) -> _TripPart:
    """Trace a function of variables; those that it does not need are left out."""
    made = jax.make_jaxpr(lambda *v: fun(dict(zip(ins, v, strict=True))))(
        *(struct(v.aval) for v in ins)
    )
    slim, needed = dce_inputs(made)
    return _TripPart(tuple(v for v, n in zip(ins, needed, strict=True) if n), slim)


def row_at(access: Read | Write, env: Values) -> Any:
    """The row that is read or written, from the value of its counter."""
    assert access.at is not None
    return access.at.row(env[access.at.count])


def _access(access: Read | Write) -> set[Var]:
    """The variables that tell which row is read or written."""
    assert access.at is not None
    return {access.stream, access.at.count}


def _firm(value: Any, var: Var) -> Any:
    """The value with exactly this type: loops refuse a carry that is weakly typed."""
    if jax.dtypes.issubdtype(var.aval.dtype, jax.dtypes.extended):
        return value
    return lax.convert_element_type(value, var.aval.dtype)

"""An inner loop that does no more than write rows, as one operation of a step.

A solver that saves its solution at given times has such a loop in its step: it writes
as many interpolated rows into a stream as fall into the step.

    while times[k] <= t:   ys[k] = interpolate(slopes, times[k]);   k = k + 1

From trip to trip it carries integers and the like, nothing that a derivative flows
through. So its trips are independent but for those, and their cotangents are sums:
backwards the loop is run again *in the same direction*, from the same integers; each
trip takes the cotangents of its rows, which no other trip writes, pulls them back to
what the loop reads, and adds them up. That needs what the loop read and the integers at
its beginning, however often it runs.

    going, k, slopes, ys     ->  k behind it, ys                    `run`
    going, k, slopes, d ys   ->  d slopes = sum of trips, d ys left  `_Backwards`

Once all rows are written, a step that is run again leaves them as they are.
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

from retape.engines.jaxpr.ir._ir import Block, Read, Var, evaluate_ops
from retape.engines.jaxpr.jaxprs._avals import blank, struct
from retape.engines.jaxpr.jaxprs._evaluate import dce_inputs
from retape.engines.jaxpr.jaxprs._row_ops import put_inside, row, take_row
from retape.engines.jaxpr.xla._scalar_guards import evaluate_guarded

rows_p = core.Primitive("retape_row_writes")
rows_p.multiple_results = True
Values = dict[Var, Any]


@rows_p.def_abstract_eval
def _row_loop_avals(*avals: Any, own: RowLoop) -> list[Any]:
    carried = avals[2 : 2 + len(own.carry)]
    return [*carried, *avals[len(avals) - len(own.streams) :]]


@dataclass(frozen=True, eq=False)
class RowLoop:
    """The loop, with its test at the end of the body.

    Its operands are whether it begins at all, whether its rows are written already,
    then the values of `carry`, `given` and `streams`; its results are what it carries,
    and the streams.
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
        """The rows that it reads; none of them is of a stream that it writes."""
        return self.block.reads

    @cached_property
    def trip(self) -> _TripPart:
        """One trip: whether to go on, the carry, and the rows to write."""
        return _trace_part(self.ins(), self._trip)

    @cached_property
    def places(self) -> _TripPart:
        """One trip: the numbers of the rows that it writes, alone."""
        n = len(self.block.writes)
        return _trace_part(self.ins(), lambda env: self._trip(env)[-n:])

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
        places = [read(w.number) for w in self.block.writes if w.number is not None]
        return [again, *(_firm(m, v) for m, v in pairs), *rows, *places]

    # Forwards ------------------------------------------------------------------------

    def run(self, *operands: Any) -> list[Any]:
        """What is carried, and the streams with the rows of all trips written."""
        going, written, *values = operands
        variables = [*self.carry, *self.given, *self.streams]
        pairs = zip(variables, values, strict=True)
        env = {v: _firm(value, v) for v, value in pairs}
        m, changed = 1 + len(self.carry), [*self.carry, *self.streams]
        first = lax.bitwise_not(lax.convert_element_type(written, np.bool_))
        writes = self.block.writes

        def body(state: list[Any]) -> list[Any]:
            inner = env | dict(zip(changed, state[1:], strict=True))
            found = self.trip(inner | self._rows(inner), state[0])
            rows, places = found[m : m + len(writes)], found[m + len(writes) :]
            for write, value, at in zip(writes, rows, places, strict=True):
                stream = inner[write.stream]
                inner[write.stream] = put_inside(first, stream, value, at)
            return [*found[:m], *(inner[s] for s in self.streams)]

        start = [_begins(going), *(env[v] for v in changed)]
        return lax.while_loop(lambda s: s[0], body, start)[1:]

    def _rows(self, env: Values) -> Values:
        return {
            r.out: row(env[r.stream], r.at.row(env[r.at.count])) for r in self.reads
        }

    # Backwards -----------------------------------------------------------------------

    def ruled(self, *operands: Any) -> list[Any]:
        """The same as `run`, for JAX to differentiate."""
        backwards = _Backwards(self)

        @jax.custom_vjp
        def rows(*operands: Any) -> list[Any]:
            return self.run(*operands)

        def forwards(*operands: Any) -> tuple[list[Any], list[Any]]:
            kept = [operands[0], *(operands[2 + i] for i in backwards.kept)]
            return self.run(*operands), kept

        def back(kept: list[Any], cotangents: list[Any]) -> tuple[Any, ...]:
            found = backwards(kept, cotangents[len(self.carry) :])
            given = [found.get(v) for v in (*self.carry, *self.given, *self.streams)]
            return (None, None, *given)

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
        needed |= {v for r in loop.reads for v in _access(r)} | {*loop.places.ins}
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
            writes = self.loop.block.writes
            pairs = zip(writes, found[m : m + len(writes)], strict=True)
            return [v for w, v in pairs if w.stream.active], found[:m]

        _, pull, rest = jax.vjp(rows, [env[v] for v in self.active], has_aux=True)
        (found,) = pull([env[self.seeds[w]] for w in self.writes])
        return [*rest, *found]

    def __call__(self, kept: Sequence[Any], cotangents: Sequence[Any]) -> Values:
        """The cotangents of what the loop is given, from those of its streams.

        And what of these goes on to whoever wrote the rows before.
        """
        loop, m = self.loop, 1 + len(self.loop.carry)
        n = m + len(self.active)
        going, *values = kept
        env = dict(zip([*loop.carry, *self.given], values, strict=True))
        streams = dict(zip(loop.streams, cotangents, strict=True))
        moving = [v for v in loop.streams if v.active]

        def body(state: list[Any]) -> list[Any]:
            inner = env | dict(zip(loop.carry, state[1:m], strict=True))
            inner |= loop._rows(inner)
            held = dict(zip(moving, state[n:], strict=True))
            places = zip(loop.block.writes, loop.places(inner, state[0]), strict=True)
            for write, at in places:
                if write in self.seeds:
                    taken = take_row(held[write.stream], at)
                    inner[self.seeds[write]], held[write.stream] = taken
            found = self.pull(inner, state[0])
            sums = zip(state[m:n], found[m:], strict=True)
            return [*found[:m], *(a + b for a, b in sums), *held.values()]

        zeros = [blank(v.aval.to_tangent_aval()) for v in self.active]
        left = [streams[v] for v in moving]
        start = [_begins(going), *(env[v] for v in loop.carry), *zeros, *left]
        found = lax.while_loop(lambda s: s[0], body, start)[m:]
        return dict(zip([*self.active, *moving], found, strict=True))


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


def _begins(index: Any) -> Any:
    """Whether the block before the loop goes on with it."""
    return lax.convert_element_type(index, np.int32) > 0


def _access(read: Read) -> set[Var]:
    """The stream of which a row is read, and the variable that tells which."""
    return {read.stream, read.at.count}


def _firm(value: Any, var: Var) -> Any:
    """The value with exactly this type: loops refuse a carry that is weakly typed."""
    if jax.dtypes.issubdtype(var.aval.dtype, jax.dtypes.extended):
        return value
    return lax.convert_element_type(value, var.aval.dtype)

"""Going forwards through the nest: the primal alone, or with a tape.

`Advance` runs the primal. `Tape` also writes residuals to the tape, and a trace of the
blocks that it went through. It can do the work of `Advance`, too: then it writes behind
the rows that count, and leaves the counters as they are, so that the next step
overwrites it.

    pool    r r r r r r | x x x . . . .       x: written, not counted
                        ^ tops

So a sweep needs one copy of the forward code instead of two. That is worth it where
arrays are small: compiling weighs more there than writing some numbers in vain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from retape.engines.jaxpr.codegen._allocate import WRITTEN, Location
from retape.engines.jaxpr.codegen._block_function import Code
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.codegen._linearize import TapedCode
from retape.engines.jaxpr.codegen._tape_pools import push
from retape.engines.jaxpr.ir._ir import Label, RowNumber
from retape.engines.jaxpr.jaxprs._avals import agreed, elements, spread, varying
from retape.engines.jaxpr.jaxprs._row_ops import put_if, put_inside, row
from retape.engines.jaxpr.jaxprs._scalar_ops import at_most, chosen
from retape.engines.jaxpr.jaxprs._scalar_ops import where as select
from retape.engines.jaxpr.nest._counted_turns import pace_of, until_left
from retape.engines.jaxpr.nest._resumable_nest import (
    Ahead,
    Guard,
    Pass,
    State,
    pc_in,
)
from retape.engines.jaxpr.sweep._pin import pinned_state
from retape.engines.jaxpr.sweep._state import evaluate_block, value_of

_LARGEST_COPY = 4096
"""Elements of the largest array that is written in vain."""
_MORE = 1.25
"""How many times the operations of the primal alone a step may take."""
_WRITTEN = 2
"""How many times the bytes of the registers a step may write, ..."""
_LITTLE = 4096
"""... and so many bytes besides. An adaptive solve that tapes seven times its registers
took a fifth longer."""


def one_copy(compiled: Compiled) -> bool:
    """Tell whether the taping code is to advance, too."""
    if any(elements(kind.shape) > _LARGEST_COPY for kind in compiled.pool_rows(1)):
        return False
    written = compiled.tape_bytes(1)
    if written > _WRITTEN * compiled.layout.capsule_bytes() + _LITTLE:
        return False
    forward = [t for t in compiled.taped.values() if not t.ending]
    alone = sum(len(t.code.jaxpr.eqns) for t in forward)
    taping = sum(len(t.halves.taped.eqns) for t in forward)
    return taping <= _MORE * alone


class Forward(Pass):
    """Steps of the primal, as long as the program counter and `left` allow.

    Args:
        compiled: The program.
        operands: Inputs, then constants.
    """

    backwards = False

    def __init__(self, compiled: Compiled, operands: Sequence[Any]) -> None:
        self.compiled = compiled
        self.operands = operands

    def passes_over(self, label: Label) -> bool:
        return self.compiled.taped[label].ending

    def guard(self, lo: int, hi: int, state: State) -> Any:
        return pc_in(lo, hi, state["pc"]) & (state["left"] > 0)

    def paces(self, label: Label) -> dict[Any, Any]:
        pace = pace_of(self.compiled, label)
        return {**pace.counters, "left": -1}

    def ahead(self, label: Label, here: int, count: int, state: State) -> Ahead:
        left = lax.convert_element_type(at_most(state["left"], count), np.int32)
        most = select(self.guard(here, here, state), left, np.int32(0))
        code = self.compiled.code[label]
        pace = pace_of(self.compiled, label)
        if pace.next is None:
            return Ahead(most)
        where = self.compiled.layout.where
        places = [where[code.ins[i]] for i in pace.reads]
        values = [
            value_of(self.compiled, code.ins[i], self.operands, state)
            for i in pace.reads
        ]
        changed = [pace.counters.get(p, 0) for p in places]
        until, nexts = until_left(pace, values, changed, here, count)
        return Ahead(at_most(most, until), nexts)


class Advance(Forward):
    """The primal alone: `left` steps, or fewer if the run ends."""

    def changes(self, label: Label) -> set[Any]:
        return {*computed(self.compiled, self.compiled.taped[label]), "pc", "left"}

    def step(self, label: Label, state: State, guard: Guard) -> State:
        code = self.compiled.code[label]
        if self.compiled.taped[label].ending:
            return skip_last_block(self.compiled, state)
        state = pinned_state(self.compiled, code, state, written(self.compiled, code))
        values = inputs(self.compiled, code, self.operands, state)
        outs = evaluate_block(code.jaxpr, values, guard.truth(state["left"]))
        state = assign(self.compiled, code, outs, state, guard.ok)
        return state | {"left": state["left"] - 1}


class Tape(Forward):
    """The primal with its residuals put on the tape, and a trace of where it went.

    Args:
        compiled: The program.
        operands: Inputs, then constants.
        last: Of the steps that are still allowed, how many count, the last ones; all
            of them if `None`.
    """

    def __init__(
        self, compiled: Compiled, operands: Sequence[Any], last: Any = None
    ) -> None:
        super().__init__(compiled, operands)
        self.last = last
        self.pools = {k: i for i, k in enumerate(compiled.pool_rows(1))}

    def changes(self, label: Label) -> set[Any]:
        taped = self.compiled.taped[label]
        pools = {("pool", self.pools[k]) for k in taped.pushes()}
        tops = {"tops"} if pools else set()
        own = computed(self.compiled, taped)
        return {*own, *pools, *tops, "pc", "left", "trace", "taped"}

    def paces(self, label: Label) -> dict[Any, Any]:
        taped = self.compiled.taped[label]
        tops = {"tops": taped.filled(self.pools)} if taped.pushes() else {}
        return {**super().paces(label), **tops, "taped": 1}

    def settled(self, label: Label, state: State, made: Any) -> State:
        """With the block in the trace once for each step."""
        number = np.int32(self.compiled.code[label].number)
        trace, end = state["trace"], state["taped"]
        index = lax.iota(np.int32, trace.shape[0])
        new = (index >= end - made) & (index < end)
        return state | {"trace": select(new, number, trace)}

    def step(self, label: Label, state: State, guard: Guard) -> State:
        taped = self.compiled.taped[label]
        count, counting = state["taped"], self.counting(state["left"])
        if taped.ending:
            state = skip_last_block(self.compiled, state)
        else:
            state = self.computed(taped, state, counting, guard)
        if "trace" in state:
            number = np.int32(taped.code.number)
            state["trace"] = put_if(guard.ok, state["trace"], number, count)
        state["taped"] = count + counting
        return state

    def computed(
        self, taped: TapedCode, state: State, counting: Any, guard: Guard
    ) -> State:
        """The state after a block, what the way back needs of it on the tape."""
        state, values = self.run(taped, state, guard)
        self.push(taped, values, state, counting, guard.ok)
        return state | {"left": state["left"] - 1}

    def run(
        self, taped: TapedCode, state: State, guard: Guard
    ) -> tuple[State, list[Any]]:
        """The state after a block, and what the way back needs of it."""
        code = taped.code
        state = pinned_state(self.compiled, code, state, written(self.compiled, code))
        values = inputs(self.compiled, code, self.operands, state)
        truth = guard.truth(state["left"])
        outs = evaluate_block(taped.halves.taped, values, truth)
        n = len(code.jaxpr.out_avals)
        old, state = state, assign(self.compiled, code, outs[:n], state, guard.ok)
        return state, [*outs[n:], *self.counts(taped, outs[:n], old)]

    def counting(self, left: Any) -> Any:
        """One if this step counts, else zero."""
        if self.last is None:
            return np.int32(1)
        return lax.convert_element_type(left <= self.last, np.int32)

    def counts(self, taped: TapedCode, outs: Sequence[Any], old: State) -> list[Any]:
        """The numbers by which the way back finds rows."""
        where = self.compiled.layout.where
        _, numbers = taped.code.results(outs)
        return [numbers[v] if v in numbers else old[where[v]] for v in taped.counts()]

    def push(
        self,
        taped: TapedCode,
        values: Sequence[Any],
        state: State,
        counting: Any,
        ok: Any,
    ) -> None:
        for kind, given in taped.by_pool(values).items():
            i = self.pools[kind]
            top = state["tops"][i]
            state["pool", i] = push(state["pool", i], given, top, ok)
        if taped.pushes():
            filled = taped.filled(self.pools)
            state["tops"] = state["tops"] + filled * counting


def skip_last_block(compiled: Compiled, state: State) -> State:
    """Leave the last block for the way back (`sweep/_last_block`)."""
    return state | {"pc": np.int32(compiled.end), "left": state["left"] - 1}


def computed(compiled: Compiled, taped: TapedCode) -> set[Location]:
    """Places that a block assigns on the way forward."""
    return set() if taped.ending else written(compiled, taped.code)


def written(compiled: Compiled, code: Code) -> set[Location]:
    """Places that a block assigns, whole or by a row."""
    where = compiled.layout.where
    live = [w.stream for w in code.writes if w.stream in where]
    return {where[v] for v in (*code.outs, *live)}


def inputs(
    compiled: Compiled, code: Code, operands: Sequence[Any], state: State
) -> list[Any]:
    """The values that a block starts from."""

    def value(var: Any) -> Any:
        return value_of(compiled, var, operands, state)

    rows = [row(value(r.stream), r.at.row(value(r.at.count))) for r in code.reads]
    return [*map(value, code.ins), *rows]


def assign(
    compiled: Compiled, code: Code, values: Sequence[Any], state: State, ok: Any = None
) -> State:
    """The state after a block that returned these values; see `Guard.ok`."""
    where = compiled.layout.where
    new = dict(state)
    n = len(code.outs)
    found, numbers = code.results(values)
    for write, value in zip(code.writes, found[n:], strict=True):
        place = where.get(write.stream)
        if place is None:
            continue
        if write.at is None:
            new[place] = chosen(ok, value, new[place])
            continue
        if isinstance(write.at, RowNumber):
            at = write.at.row(numbers)
            # What is run again leaves the rows as they were in the end.
            first = lax.bitwise_not(state[WRITTEN])
            first = first if ok is None else lax.bitwise_and(first, ok)
            new[place] = put_inside(first, new[place], value, at)
            continue
        at = write.at.row(state[where[write.at.count]])
        if place in compiled.layout.turned:
            done = spread(state[WRITTEN], varying(jax.typeof(value)))
            value = select(done, row(new[place], at), value)
        new[place] = put_if(ok, new[place], value, at)
    for var, value in zip(code.outs, values[:n], strict=True):
        new[where[var]] = chosen(ok, value, new[where[var]])
    new["pc"] = agreed(values[-1])
    return new

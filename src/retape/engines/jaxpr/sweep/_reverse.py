"""Going backwards through the nest: cotangents, pulled through what was taped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from retape.engines.jaxpr.codegen._block_function import Code, take_cotangents
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.codegen._linearize import TapedCode
from retape.engines.jaxpr.codegen._tape_pools import pool_of, pop
from retape.engines.jaxpr.ir._ir import Label, Position, Var
from retape.engines.jaxpr.jaxprs._avals import Kind, zeros_as
from retape.engines.jaxpr.jaxprs._row_ops import put_if, row
from retape.engines.jaxpr.jaxprs._scalar_ops import at_least, at_most, chosen, where
from retape.engines.jaxpr.nest._resumable_nest import (
    Ahead,
    Guard,
    Pass,
    State,
    pc_in,
)
from retape.engines.jaxpr.sweep._pin import ordered, tied_state
from retape.engines.jaxpr.sweep._state import evaluate_block, value_of


class Reverse(Pass):
    """Sweeps the taped steps back, last first; empties the tape."""

    backwards = True

    def __init__(self, compiled: Compiled, operands: Sequence[Any]) -> None:
        self.compiled = compiled
        self.operands = operands
        self.pools = {k: i for i, k in enumerate(compiled.pool_rows(1))}

    def changes(self, label: Label) -> set[Any]:
        taped = self.compiled.taped[label]
        tops = {"tops"} if taped.pushes() else set()
        touched = cotangents_touched(self.compiled, taped)
        return {*tops, *touched, "taped"}

    def guard(self, lo: int, hi: int, state: State) -> Any:
        count = state["taped"]
        last = row(state["trace"], at_least(count - 1, 0))
        return pc_in(lo, hi, last) & (count > 0)

    def paces(self, label: Label) -> dict[Any, Any]:
        taped = self.compiled.taped[label]
        found: dict[Any, Any] = {"taped": -1}
        return found | ({"tops": -taped.filled(self.pools)} if taped.pushes() else {})

    def ahead(self, label: Label, here: int, count: int, state: State) -> Ahead:
        del label
        trace, end = state["trace"], state["taped"]
        index = lax.iota(np.int32, trace.shape[0]) + np.int32(1)
        others = where((index <= end) & (trace != np.int32(here)), index, np.int32(0))
        alike = at_most(end - lax.reduce_max(others, (0,)), count)
        return Ahead(where(self.guard(here, here, state), alike, np.int32(0)))

    def step(self, label: Label, state: State, guard: Guard) -> State:
        taped = self.compiled.taped[label]
        state = dict(state)
        state["taped"] = state["taped"] - 1
        return self.swept(taped, self.pop(taped, state), state, guard)

    def swept(
        self, taped: TapedCode, popped: list[Any], state: State, guard: Guard
    ) -> State:
        """The state before a block, by what was taped of it."""
        n = len(taped.halves.kinds)
        counts = dict(zip(taped.counts(), popped[n:], strict=True))
        state = dict(self.pinned(taped, state))
        sources = taped.halves.sources
        lasting = [self.lasting(taped.code, i, counts, state) for i in sources]
        values = [*popped[:n], *lasting]
        sweep_back(self.compiled, taped, values, counts, state, guard)
        return state

    def pop(self, taped: TapedCode, state: State) -> list[Any]:
        """Pop what the last step taped: values, and loop counters."""
        kinds = taped.by_pool(taped.pushed())
        popped: dict[Kind, list[Any]] = {}
        if kinds:
            state["tops"] = state["tops"] - taped.filled(self.pools)
        for kind, alike in kinds.items():
            i = self.pools[kind]
            popped[kind] = pop(state["pool", i], alike, state["tops"][i])
        return [popped[pool_of(kind)].pop(0) for kind in taped.pushed()]

    def pinned(self, taped: TapedCode, state: State) -> State:
        """See `_pin.pinned_state`: what follows from kept values is made here, too."""
        code, where = taped.code, self.compiled.layout.where
        whole = [code.ins[i] for i in taped.halves.sources if i < len(code.ins)]
        kept = {where[v] for v in whole if where[v].kind == "resident"}
        return tied_state(state, kept, "taped") if code.once else state

    def lasting(
        self, code: Code, source: int, counts: dict[Var, Any], state: State
    ) -> Any:
        """An input of the block that is an operand, or kept, or a row of one."""

        def value(var: Var) -> Any:
            return value_of(self.compiled, var, self.operands, state)

        if source < len(code.ins):
            return value(code.ins[source])
        read = code.reads[source - len(code.ins)]
        return row(value(read.stream), read.at.row(counts[read.at.count]))


def cotangents_touched(compiled: Compiled, taped: TapedCode) -> set[Any]:
    """Keys of the cotangents that change when a block is swept back."""
    layout, code = compiled.layout, taped.code
    where = layout.where
    sources = [*code.ins, *(r.stream for r in code.reads)]
    read = {where[sources[i]] for i in taped.active_ins}
    overwritten = {where[v] for v in code.outs if where[v].kind == "register"}
    overwritten |= {where[v] for v in code.taken if v in where}
    return {layout.cotangent(p) for p in (read | overwritten) & layout.active}


def sweep_back(
    compiled: Compiled,
    taped: TapedCode,
    values: Sequence[Any],
    counts: dict[Var, Any],
    state: State,
    guard: Guard,
) -> None:
    """Pull the cotangent back through one block, in place in `state`.

    Invariant: `state["d", place]` is the cotangent of the value that `place` held at
    this point of the run. So a register that the block assigned has cotangent zero
    before it, but for what the block's own reading of that register gives back.
    """
    pulled: Sequence[Any] = ()
    cotangents = cotangents_out(compiled, taped, counts, state, guard.ok)
    if taped.has_derivative:
        pullback = taped.halves.pullback
        assert pullback is not None
        cotangents = ordered(pullback, cotangents, state["taped"])
        truth = guard.truth(state["taped"])
        pulled = evaluate_block(pullback, [*values, *cotangents], truth)
    add_cotangents(compiled, taped, pulled, counts, state, guard.ok)


def add_cotangents(
    compiled: Compiled,
    taped: TapedCode,
    pulled: Sequence[Any],
    counts: dict[Var, Any],
    state: State,
    ok: Any,
) -> None:
    """Put what was pulled back through a block where it belongs, in place."""
    layout, code = compiled.layout, taped.code
    where = layout.where
    places = (where[var] for var in code.outs)
    blank = {("d", p) for p in places if p.kind == "register" and p in layout.active}
    # Where a stream was, there was no cotangent before that of the last block.
    read = (where[code.ins[i]] for i in taped.active_ins if i < len(code.ins))
    blank |= {p for p in read if p in layout.turned}
    # A loop in a step gives back what it did not take.
    blank |= {layout.cotangent(where[v]) for v in code.filled if v.active}
    for i, value in zip(taped.active_ins, pulled, strict=True):
        if i < len(code.ins):
            key = layout.cotangent(where[code.ins[i]])
            if key in blank and jax.typeof(value) == jax.typeof(state[key]):
                state[key] = chosen(ok, value, state[key])
            else:
                before = zeros_as(state[key]) if key in blank else state[key]
                state[key] = chosen(ok, before + value, state[key])
            blank.discard(key)
        else:
            read = code.reads[i - len(code.ins)]
            key = layout.cotangent(where[read.stream])
            at = read.at.row(counts[read.at.count])
            state[key] = put_if(ok, state[key], row(state[key], at) + value, at)
    state |= {key: chosen(ok, zeros_as(state[key]), state[key]) for key in blank}


def cotangents_out(
    compiled: Compiled,
    taped: TapedCode,
    counts: dict[Var, Any],
    state: State,
    ok: Any = None,
) -> list[Any]:
    """Those of `active_outs`; what rows give up is taken from the state."""
    code, layout = taped.code, compiled.layout
    numbers = {v: counts[v] for v in code.numbers if v in counts}
    keys = {v: layout.cotangent(layout.where[v]) for v in code.taken}
    held = {v: state[k] for v, k in keys.items()}
    rows = take_cotangents(code, taped.active_outs, numbers, held, ok)
    state |= {keys[v]: d for v, d in held.items()}
    return [
        rows[i] if i in rows else _cotangent_out(compiled, code, i, counts, state)
        for i in taped.active_outs
    ]


def _cotangent_out(
    compiled: Compiled, code: Code, i: int, counts: dict[Var, Any], state: State
) -> Any:
    layout = compiled.layout
    where = layout.where
    if i < len(code.outs):
        return state[layout.cotangent(where[code.outs[i]])]
    write = code.writes[i - len(code.outs)]
    stream = state[layout.cotangent(where[write.stream])]
    if write.at is None:
        return stream
    assert isinstance(write.at, Position)
    return row(stream, write.at.row(counts[write.at.count]))

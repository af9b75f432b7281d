"""Running steps inside one XLA program: the program's loops, made resumable.

A run that was interrupted goes on in the middle of a nest of loops. Jumping there
through a `switch` over all blocks would pass every register through every branch,
and XLA copies what passes through a branch. Instead the nest itself is emitted, with
a guard on every block and loop (compare "Duff's device"):

    while pc in outer loop and steps are left:
        while pc == 3 and steps are left:  block 3
        while pc == 4 and steps are left:  block 4      <- a hot inner loop stays native
        while pc == 5 and steps are left:  block 5

Wherever the program counter points to, control falls through to that block. A
`while` keeps in place what its body does not change, so a block costs nothing for
registers that it does not touch; each block is compiled once, however deep it stands.
The same nest, read backwards, undoes a stage: there the guard looks at the recorded
program counters instead.

State is a dictionary. Keys are `Place`s (registers), `("d", place)` (cotangents),
`("pool", i)` (tape) and names of counters; a loop carries just the keys that change
inside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ._code import Code
from ._compile import Compiled
from ._ir import Block, Item, Label, Var, blocks_of
from ._layout import Place, extent, numbering
from ._pools import pool_of, pop, push
from ._rows import put, row
from ._scalars import evaluate
from ._tape import TapedCode
from ._types import Kind, agreed, spread, varying, zeros_as

State = dict[Any, Any]


class Pass(Protocol):
    """One way of going through the blocks: what is done at each, and when."""

    backwards: bool

    def changes(self, label: Label) -> set[Any]:
        """Keys of the state that running this block changes."""
        ...

    def guard(self, lo: int, hi: int, state: State) -> Any:
        """Whether the next step to be done is one of blocks `lo..hi`."""
        ...

    def step(self, label: Label, state: State) -> State:
        """Do one step of this block."""
        ...


def run(compiled: Compiled, going: Pass, state: State) -> State:
    """Emit the nest for one pass."""
    return _emit(compiled.items, going, numbering(compiled.items), state)


def _emit(
    items: Sequence[Item], going: Pass, number: dict[Label, int], state: State
) -> State:
    for item in reversed(items) if going.backwards else items:
        state = _guarded(item, going, number, state)
    return state


def _guarded(item: Item, going: Pass, number: dict[Label, int], state: State) -> State:
    lo, hi = extent(item, number)
    changed = set().union(*(going.changes(b.label) for b in blocks_of([item])))
    keys = sorted(changed, key=str)

    def again(carry: Sequence[Any]) -> Any:
        return going.guard(lo, hi, state | dict(zip(keys, carry, strict=True)))

    def body(carry: Sequence[Any]) -> list[Any]:
        inner = state | dict(zip(keys, carry, strict=True))
        if lo == hi:
            inner = going.step(next(blocks_of([item])).label, inner)
        else:
            assert not isinstance(item, Block)
            inner = _emit(item.items, going, number, inner)
        return [inner[k] for k in keys]

    after = lax.while_loop(again, body, [state[k] for k in keys])
    return state | dict(zip(keys, after, strict=True))


class Advance:
    """The primal alone: `left` steps, or fewer if the run ends."""

    backwards = False

    def __init__(self, compiled: Compiled, operands: Sequence[Any]) -> None:
        self.compiled = compiled
        self.operands = operands

    def changes(self, label: Label) -> set[Any]:
        return {*written(self.compiled, self.compiled.code[label]), "pc", "left"}

    def guard(self, lo: int, hi: int, state: State) -> Any:
        return between(lo, hi, state["pc"]) & (state["left"] > 0)

    def step(self, label: Label, state: State) -> State:
        code = self.compiled.code[label]
        state = pinned(self.compiled, code, state, written(self.compiled, code))
        values = inputs(self.compiled, code, self.operands, state)
        outs = evaluate(code.jaxpr, values, state["left"] > 0)
        state = assign(self.compiled, code, outs, state)
        return state | {"left": state["left"] - 1}


class Tape:
    """The primal with its residuals put on the tape, and a trace of where it went."""

    backwards = False

    def __init__(self, compiled: Compiled, operands: Sequence[Any]) -> None:
        self.compiled = compiled
        self.operands = operands
        self.pools = {k: i for i, k in enumerate(compiled.pool_rows(1))}

    def changes(self, label: Label) -> set[Any]:
        taped = self.compiled.taped[label]
        pools = {("pool", self.pools[k]) for k in taped.pushes()}
        tops = {"tops"} if pools else set()
        own = written(self.compiled, taped.code)
        return {*own, *pools, *tops, "pc", "left", "trace", "taped"}

    def guard(self, lo: int, hi: int, state: State) -> Any:
        return between(lo, hi, state["pc"]) & (state["left"] > 0)

    def step(self, label: Label, state: State) -> State:
        taped = self.compiled.taped[label]
        code = taped.code
        state = pinned(self.compiled, code, state, written(self.compiled, code))
        values = inputs(self.compiled, code, self.operands, state)
        outs = evaluate(taped.halves.taped, values, state["left"] > 0)
        n = len(taped.code.jaxpr.out_avals)
        old, state = state, assign(self.compiled, taped.code, outs[:n], state)
        self.push(taped, outs[n:], old, state)
        count = state["taped"]
        state["trace"] = put(state["trace"], np.int32(taped.code.number), count)
        state["taped"] = count + 1
        state["left"] = state["left"] - 1
        return state

    def push(
        self, taped: TapedCode, values: Sequence[Any], old: State, state: State
    ) -> None:
        counts = [old[self.compiled.layout.where[v]] for v in taped.counts()]
        for kind, given in _by_pool(taped, [*values, *counts]).items():
            i = self.pools[kind]
            state["pool", i] = push(state["pool", i], given, state["tops"][i])
        if taped.pushes():
            state["tops"] = state["tops"] + filled(taped, self.pools)


class Reverse:
    """Sweeps the taped steps back, last first; empties the tape."""

    backwards = True

    def __init__(self, compiled: Compiled, operands: Sequence[Any]) -> None:
        self.compiled = compiled
        self.operands = operands
        self.pools = {k: i for i, k in enumerate(compiled.pool_rows(1))}

    def changes(self, label: Label) -> set[Any]:
        taped = self.compiled.taped[label]
        tops = {"tops"} if taped.pushes() else set()
        touched = {("d", p) for p in cotangents_touched(self.compiled, taped)}
        return {*tops, *touched, "taped"}

    def guard(self, lo: int, hi: int, state: State) -> Any:
        count = state["taped"]
        last = row(state["trace"], jnp.maximum(count - 1, 0))
        return between(lo, hi, last) & (count > 0)

    def step(self, label: Label, state: State) -> State:
        taped = self.compiled.taped[label]
        state = dict(state)
        state["taped"] = state["taped"] - 1
        values, counts = self.pop(taped, state)
        sources = taped.halves.sources
        values += [self.lasting(taped.code, i, counts, state) for i in sources]
        sweep_back(self.compiled, taped, values, counts, state)
        return state

    def pop(self, taped: TapedCode, state: State) -> tuple[list[Any], dict[Var, Any]]:
        """What the last step taped: values, and loop counters."""
        kinds = _by_pool(taped, taped.pushed())
        popped: dict[Kind, list[Any]] = {}
        if kinds:
            state["tops"] = state["tops"] - filled(taped, self.pools)
        for kind, alike in kinds.items():
            i = self.pools[kind]
            popped[kind] = pop(state["pool", i], alike, state["tops"][i])
        found = [popped[pool_of(kind)].pop(0) for kind in taped.pushed()]
        n = len(taped.halves.kinds)
        return found[:n], dict(zip(taped.counts(), found[n:], strict=True))

    def lasting(
        self, code: Code, source: int, counts: dict[Var, Any], state: State
    ) -> Any:
        """An input of the block that is an operand, or kept, or a row of one."""

        def value(var: Var) -> Any:
            place = self.compiled.layout.where[var]
            return (
                self.operands[place.index] if place.kind == "operand" else state[place]
            )

        if source < len(code.ins):
            return value(code.ins[source])
        read = code.reads[source - len(code.ins)]
        return row(value(read.stream), read.at.row(counts[read.at.count]))


def written(compiled: Compiled, code: Code) -> set[Place]:
    """Places that a block assigns, whole or by a row."""
    where = compiled.layout.where
    live = [w.stream for w in code.writes if w.stream in where]
    return {where[v] for v in (*code.outs, *live)}


def inputs(
    compiled: Compiled, code: Code, operands: Sequence[Any], state: State
) -> list[Any]:
    """The values that a block starts from."""
    where = compiled.layout.where

    def value(var: Any) -> Any:
        place = where[var]
        return operands[place.index] if place.kind == "operand" else state[place]

    rows = [row(value(r.stream), r.at.row(value(r.at.count))) for r in code.reads]
    return [*map(value, code.ins), *rows]


def pinned(compiled: Compiled, code: Code, state: State, changed: set[Place]) -> State:
    """The state with registers that the block leaves alone tied to its running.

    A block is guarded by a loop. What follows from values alone that the loop does not
    change XLA would move in front of it: it would be computed whether or not the block
    runs, and be held in memory beside what other blocks need.
    """
    where = compiled.layout.where
    read = [*code.ins, *(a.at.count for a in (*code.reads, *code.writes))]
    keys = sorted({where[v] for v in read if where[v].kind == "slot"} - changed)
    # A barrier gives all that goes through it one type, so each type has its own.
    spreads = {varying(jax.typeof(state[k])) for k in keys}
    for axes in sorted(spreads, key=sorted):
        alike = [k for k in keys if varying(jax.typeof(state[k])) == axes]
        first, *values = lax.optimization_barrier(
            [spread(state["left"], axes), *(state[k] for k in alike)]
        )
        state = state | dict(zip(alike, values, strict=True))
        if not axes:
            state["left"] = first
    return state


def assign(
    compiled: Compiled, code: Code, values: Sequence[Any], state: State
) -> State:
    """The state after a block that returned these values."""
    where = compiled.layout.where
    new = dict(state)
    n = len(code.outs)
    for write, value in zip(code.writes, values[n:-1], strict=True):
        place = where.get(write.stream)
        if place is not None:
            at = write.at.row(state[where[write.at.count]])
            new[place] = put(state[place], value, at)
    for var, value in zip(code.outs, values[:n], strict=True):
        new[where[var]] = value
    new["pc"] = agreed(values[-1])
    return new


def cotangents_touched(compiled: Compiled, taped: TapedCode) -> set[Place]:
    """Places whose cotangent changes when a block is swept back."""
    where, code = compiled.layout.where, taped.code
    sources = [*code.ins, *(r.stream for r in code.reads)]
    read = {where[sources[i]] for i in taped.active_ins}
    overwritten = {where[v] for v in code.outs if where[v].kind == "slot"}
    return (read | overwritten) & compiled.layout.active


def sweep_back(
    compiled: Compiled,
    taped: TapedCode,
    values: Sequence[Any],
    counts: dict[Var, Any],
    state: State,
) -> None:
    """Pull the cotangent back through one block, in place in `state`.

    Invariant: `state["d", place]` is the cotangent of the value that `place` held at
    this point of the run. So a slot that the block assigned has cotangent zero before
    it, but for what the block's own reading of that slot gives back.
    """
    code = taped.code
    pulled: Sequence[Any] = ()
    if taped.moves:
        cotangents = [
            cotangent_out(compiled, code, i, counts, state) for i in taped.active_outs
        ]
        truth = state["taped"] >= 0
        pullback = taped.halves.pullback
        assert pullback is not None
        pulled = evaluate(pullback, [*values, *cotangents], truth)
    add_cotangents(compiled, taped, pulled, counts, state)


def add_cotangents(
    compiled: Compiled,
    taped: TapedCode,
    pulled: Sequence[Any],
    counts: dict[Var, Any],
    state: State,
) -> None:
    """Put what was pulled back through a block where it belongs, in place."""
    where, code = compiled.layout.where, taped.code
    for var in code.outs:
        place = where[var]
        if place.kind == "slot" and place in compiled.layout.active:
            state["d", place] = zeros_as(state["d", place])
    for i, value in zip(taped.active_ins, pulled, strict=True):
        if i < len(code.ins):
            key = ("d", where[code.ins[i]])
            state[key] = state[key] + value
        else:
            read = code.reads[i - len(code.ins)]
            key = ("d", where[read.stream])
            at = read.at.row(counts[read.at.count])
            state[key] = put(state[key], row(state[key], at) + value, at)


def cotangent_out(
    compiled: Compiled, code: Code, i: int, counts: dict[Var, Any], state: State
) -> Any:
    where = compiled.layout.where
    if i < len(code.outs):
        return state["d", where[code.outs[i]]]
    write = code.writes[i - len(code.outs)]
    stream = state["d", where[write.stream]]
    return row(stream, write.at.row(counts[write.at.count]))


def between(lo: int, hi: int, pc: Any) -> Any:
    return pc == lo if lo == hi else (pc >= lo) & (pc <= hi)


def filled(taped: TapedCode, pools: dict[Kind, int]) -> Any:
    """How many rows of each pool a block fills, by the numbers of the pools."""
    counts = taped.pushes()
    # An array would be a constant of the program, which a kernel cannot hold.
    return jnp.stack([np.int32(counts[kind]) for kind in pools])


def _by_pool(taped: TapedCode, values: Sequence[Any]) -> dict[Kind, list[Any]]:
    """One value for each that the block tapes, grouped by the pools of those."""
    found: dict[Kind, list[Any]] = {}
    for kind, value in zip(taped.pushed(), values, strict=True):
        found.setdefault(pool_of(kind), []).append(value)
    return found

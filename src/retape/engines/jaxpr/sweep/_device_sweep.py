"""The turns of a sweep for an accelerator: a wait for each chunk, and one a stage.

In `sweep/_sweep` a turn is a restore, an advance, a store and a stage to sweep back,
each in a loop that ends at once where it is not called for. A host would wait for all
of those ends; and without them what is not called for is run in vain: in a turn that
ends in a store the taping and the sweep back of a whole stage. So turns are cut in
another way here. One loop goes on until the registers stand before the stage to
reverse, chunk by chunk; what is behind it is called for whenever it is reached:

    turn:   while not before the last stage that is left:      a wait each
                advance a chunk
                if that was the last one: store?  restore?  decide where to go
            tape a chunk
            if that was the last one: sweep a chunk back
            if that was the last one: restore?  decide where to go

Decisions, restores and stores are choices between values: nobody waits for them. A
stage that takes several chunks takes several turns. Where each takes one, and their
number is known, the turns are a loop of known trip count: then, with S stages that are
advanced a times in all, the host waits S + a times, else 2 S + a + 1. Where there is a
snapshot for each stage of a loop nothing is to be decided (`sweep/_equal_parts`).

A run that nobody sweeps back, for the value of a function that is also differentiated,
is only advanced, the last block done once in the end (`chunked_run`):

    while not before the last block:           a wait each
        advance a chunk
    the last block
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from retape.engines.jaxpr.codegen._allocate import WRITTEN
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._settings import LONGEST_GO, Settings
from retape.engines.jaxpr.jaxprs._avals import blank
from retape.engines.jaxpr.jaxprs._scalar_ops import chosen, own_types, where
from retape.engines.jaxpr.nest._chunk_sizes import LONGEST, chunk_sizes
from retape.engines.jaxpr.nest._known_trips import emit
from retape.engines.jaxpr.nest._resumable_nest import Pass, State
from retape.engines.jaxpr.sweep._forward import Advance, Tape, assign, inputs
from retape.engines.jaxpr.sweep._last_block import ReverseLast
from retape.engines.jaxpr.sweep._state import evaluate_block, output_of, register_outs
from retape.engines.jaxpr.sweep._sweep import Sweep


class DeviceSweep(Sweep):
    """The turns of one program under one plan, in loops that a host need not test.

    Its state has what was decided, from one chunk to the next: `goal`, `store` and
    `stage` as in `control/_next_action`, the steps that were `asked` for on the way
    there, those still `to_go`, and whether the taping of a stage was `begun`.
    """

    def __init__(
        self,
        compiled: Compiled,
        settings: Settings,
        operands: Sequence[Any],
        *,
        watch: bool,
    ) -> None:
        super().__init__(compiled, settings, operands, watch=watch)
        self.sizes = chunk_sizes(compiled, settings.stage)

    def may_share_code(self) -> bool:
        """Each pass has its own chunks, so that no two share their code."""
        return False

    @property
    def turns(self) -> int | None:
        """How many there are: one a stage, if each is reversed in one turn."""
        length = self.compiled.program.length
        at_once = self.settings.direct or self.sizes.is_single
        return -(-length // self.settings.stage) if length and at_once else None

    def begin(self, state: State) -> State:
        none = jnp.zeros((), self.step_kind)
        state = state | {"goal": jnp.zeros((), self.kind), "asked": none, "to_go": none}
        state |= {k: jnp.asarray(False) for k in ("store", "stage", "begun")}
        return self.aim(state, jnp.asarray(True))

    def turn(self, state: State) -> State:
        """One turn: see the module's first lines."""
        state = self.at_the_stage(state)
        if self.settings.direct:
            state = self.reverse_stage(state, state["stage"])
            return self.aim(state, state["end"] > 0)
        state, done = self.reverse_chunk(state)
        return self.aim(state, done & (state["end"] > 0))

    def at_the_stage(self, state: State) -> State:
        """Advance until the registers stand before the stage that is next."""
        carried = self.carried

        def on_the_way(carry: Sequence[Any]) -> Any:
            now = carried.state(carry)
            return (now["to_go"] > 0) | ~now["stage"]

        def move(carry: Sequence[Any]) -> list[Any]:
            return carried.values(self.move(carried.state(carry)))

        carry = lax.while_loop(on_the_way, move, carried.values(state))
        return carried.state(carry)

    def reverse_chunk(self, state: State) -> tuple[State, Any]:
        """Tape and sweep back a chunk of a stage; also whether that was all of it."""
        begun, stage = state["begun"], self.settings.stage
        steps = self.steps_of(state["here"], state)
        last = state["here"] * self.stage + steps == state["n"]
        state = state | {
            "left": where(begun, state["left"], self.as_steps(steps)),
            "taped": where(begun, state["taped"], 0),
        }
        state = self.go(Tape(self.compiled, self.operands), state, stage)
        state = self.back(_ReverseTaped(self.compiled, self.operands), state, stage)
        done = (state["left"] == 0) & (state["taped"] == 0)
        state = self.capture(state | {"begun": ~done}, last & done)
        return self.finish_stage(state, done), done

    def aim(self, state: State, asked: Any) -> State:
        """Go to where the sweep goes on, and decide where to advance from there."""
        state = self.restore(state, asked)
        goal, store, stage, after = self.decide(state)
        steps = self.as_steps((goal - state["here"]) * self.stage)
        new = {"goal": goal, "store": store, "stage": stage}
        new |= {"asked": steps, "to_go": steps}
        new |= {k: after[k] for k in ("sweeps",) if k in after}
        return state | {k: where(asked, v, state[k]) for k, v in new.items()}

    def move(self, state: State) -> State:
        """Advance a chunk; at the goal, or at the end, store and aim anew."""
        begin, asked = state["here"], state["asked"]
        before = state["to_go"]
        forward = Advance(self.compiled, self.operands)
        begun = state | {"left": before}
        state = emit(self.compiled, forward, begun, self.sizes, one_chunk=True)
        to_go = state["left"]
        arrived = (to_go == 0) | (state["pc"] == self.compiled.end)
        state |= {
            "here": where(arrived, state["goal"], begin),
            "left": asked - to_go,
            "to_go": where(arrived, self.step_kind(0), to_go),
            "fresh": state["fresh"] & (before == to_go),
            "advances": state["advances"] + (before - to_go),
        }
        if self.unknown:
            state = self.look_for_the_end(state, begin)
        if self.online:
            state = self.place(state, begin, arrived)
        state = self.store(state, state["store"] & arrived, arrived)
        return self.aim(state, arrived & ~state["stage"] & (state["end"] > 0))

    def go(self, going: Pass, state: State, at_most: int | None = None) -> State:
        """Go through the program: all of it where that is one chunk, else a chunk."""
        if self.sizes.is_single or at_most == 1:
            return emit(self.compiled, going, state, self.sizes, at_most=at_most)
        return emit(self.compiled, going, state, self.sizes, one_chunk=True)

    def capture(self, state: State, wanted: Any) -> State:
        """Keep the outputs that live in registers, which the sweep back overwrites."""
        pairs = register_outs(self.compiled).items()
        kept = {("out", i): chosen(wanted, state[p], state["out", i]) for i, p in pairs}
        return state | kept


class _ReverseTaped(ReverseLast):
    """The same once all of a stage is on the tape."""

    def guard(self, lo: int, hi: int, state: State) -> Any:
        return super().guard(lo, hi, state) & (state["left"] == 0)


# Without a way back ---------------------------------------------------------------


def chunked_run(compiled: Compiled, operands: Sequence[Any]) -> list[Any]:
    """The program's outputs.

    Args:
        compiled: The program, of several blocks.
        operands: Inputs, then constants.
    """
    sizes = chunk_sizes(compiled, LONGEST, derivatives=False)
    forward = Advance(compiled, operands)
    with own_types():
        state = _before_steps(compiled)
        keys = sorted(state, key=str)

        def unfinished(carry: Sequence[Any]) -> Any:
            return carry[keys.index("pc")] < compiled.end

        def chunk(carry: Sequence[Any]) -> list[Any]:
            before = dict(zip(keys, carry, strict=True))
            before["left"] = jnp.int32(LONGEST_GO)
            after = emit(compiled, forward, before, sizes, one_chunk=True)
            return [after[k] for k in keys]

        carry = lax.while_loop(unfinished, chunk, [state[k] for k in keys])
        state = _last_block(compiled, operands, dict(zip(keys, carry, strict=True)))
        outs = compiled.program.outs
        return [output_of(compiled, out, operands, state) for out in outs]


def _before_steps(compiled: Compiled) -> State:
    layout = compiled.layout
    state: State = {p: blank(layout.avals[p]) for p in layout.places("register")}
    state |= {p: layout.blank(p) for p in layout.places("resident")}
    return state | {
        "pc": jnp.int32(0),
        "left": jnp.int32(LONGEST_GO),
        WRITTEN: jnp.asarray(False),
    }


def _last_block(compiled: Compiled, operands: Sequence[Any], state: State) -> State:
    """Run what `Advance` only passes over."""
    (last,) = (taped.code for taped in compiled.taped.values() if taped.ending)
    values = inputs(compiled, last, operands, state)
    outs = evaluate_block(last.jaxpr, values, None)
    return assign(compiled, last, outs, state)

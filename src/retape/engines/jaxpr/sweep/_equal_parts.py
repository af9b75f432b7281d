"""A sweep in which each stage has its snapshot, as two scans: nobody waits, or decides.

Where a program is one loop of a known number of steps, and there are snapshots for all
of its stages, everything that a controller would decide is known before the run:

    forth:  for each part but the last:  keep the registers;  advance its steps
            the last part:               tape its steps
            the last block, and the last part swept back
    back:   for each part before it, from its registers:  tape its steps;  sweep back

A part is a stage. Loops have exactly as many turns as there are steps to make, so that
no block is run in vain, and a step costs a GPU what it does in scans that are nested by
hand. What counts steps follows from their number, and is neither carried nor kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from retape.engines.jaxpr.codegen._allocate import Location
from retape.engines.jaxpr.codegen._compiled import Compiled, with_thin_tape
from retape.engines.jaxpr.control._settings import INT, Settings, step_type
from retape.engines.jaxpr.ir._ir import Block, Label, Loop
from retape.engines.jaxpr.nest._carried import Carried
from retape.engines.jaxpr.nest._counted_turns import after_steps, pace_of
from retape.engines.jaxpr.nest._resumable_nest import PLAIN, State
from retape.engines.jaxpr.sweep._forward import Advance, Tape
from retape.engines.jaxpr.sweep._last_block import ReverseLast
from retape.engines.jaxpr.sweep._state import (
    SweepCounts,
    before_run,
    output_of,
    register_outs,
)
from retape.engines.jaxpr.sweep._tapeless import Tapeless

_OWN = frozenset({"pc", "left", "taped", "tops", "trace"})
"""Keys of the state by which other sweeps find their way."""


class EqualParts(NamedTuple):
    """The parts of a run.

    Attributes:
        full: How many there are, besides the last.
        steps: Steps of each.
        last: Steps of the last.
    """

    full: int
    steps: int
    last: int


def equal_parts(compiled: Compiled, settings: Settings) -> EqualParts | None:
    """The parts of an accelerator's sweep; `None` if it has to be steered."""
    loops = [i for i in compiled.items if isinstance(i, Loop)]
    plain = settings.split == "binomial" and not settings.thrift
    if not (settings.device and plain) or settings.on_host or len(loops) != 1:
        return None
    (loop,), around = loops, len(compiled.items) - 1
    known = loop.length is not None and loop.length + around == compiled.program.length
    if not known or len(loop.items) > 1 or not isinstance(compiled.items[-1], Block):
        return None
    parts = cut_evenly(loop.length or 0, settings.stage)
    alone = isinstance(loop.items[0], Block) and parts.last > 0
    return parts if alone and parts.full <= settings.snapshots else None


def cut_evenly(steps: int, stage: int) -> EqualParts:
    """The parts of so many steps.

    Examples:
        >>> cut_evenly(10, 4)
        EqualParts(full=2, steps=4, last=2)
    """
    full = max(0, -(-steps // stage) - 1)
    return EqualParts(full, stage, steps - full * stage)


def sweep_equal_parts(
    compiled: Compiled,
    parts: EqualParts,
    operands: Sequence[Any],
    cotangents: Sequence[Any],
) -> list[Any]:
    """Outputs, cotangents and counts, one after the other, as a sweep hands them back.

    Args:
        compiled: The program.
        parts: How the run is cut.
        operands: Inputs, then constants.
        cotangents: Those of the active outputs, in order.
    """
    # A step that is swept back at once is run again from its inputs, too.
    compiled = with_thin_tape(compiled) if parts.steps == 1 else compiled
    state: State = before_run(compiled, cotangents)
    return _ScannedSweep(compiled, operands, parts).sweep(state)


class _ScannedSweep:
    """The sweep of one program.

    Args:
        compiled: The program.
        operands: Inputs, then constants.
        parts: How its loop is cut.
    """

    def __init__(
        self, compiled: Compiled, operands: Sequence[Any], parts: EqualParts
    ) -> None:
        self.compiled, self.operands, self.parts = compiled, operands, parts
        self.advance, self.tape = Advance(compiled, operands), Tape(compiled, operands)
        self.reverse = ReverseLast(compiled, operands)
        (index,) = [n for n, i in enumerate(compiled.items) if isinstance(i, Loop)]
        labels = [i.label for i in compiled.items if isinstance(i, Block)]
        self.before, self.behind = labels[:index], labels[index:-1]
        self.ending = labels[-1]
        self.label = _only_block(compiled.items[index])
        self.taped = compiled.taped[self.label]
        self.counters = pace_of(compiled, self.label).counters
        self.kind = step_type(compiled.program.length)

    def sweep(self, state: State) -> list[Any]:
        compiled, parts = self.compiled, self.parts
        first, preludes = self.once(self.before, state)
        self.counted = {p: first[p] for p in self.counters}
        state, starts = self.advance_parts(first)
        last = parts.full * parts.steps
        state, tape = self.forth(state, last, parts.last)
        state = state | self.at(last + parts.last)
        state, behind = self.once(self.behind, state)
        state = state | {"taped": INT(1)}
        state = self.reverse.step(self.ending, state, PLAIN)
        outs = [
            state[register_outs(compiled)[i]]
            if i in register_outs(compiled)
            else output_of(compiled, out, self.operands, state)
            for i, out in enumerate(compiled.program.outs)
        ]
        state = self.once_back(self.behind, behind, state)
        state = self.back(state, tape, last, parts.last)
        state = self.reverse_parts(state, starts)
        state = self.once_back(self.before, preludes, state)
        places = compiled.layout.places("operand")
        mine = [state["d", p] for p in places if p in compiled.layout.active]
        return [*outs, *mine, *self.counts()]

    # Blocks around the loop -------------------------------------------------------

    def once(self, labels: list[Label], state: State) -> tuple[State, list[State]]:
        """Run blocks outside the loop; also the registers before each."""
        states: list[State] = []
        for label in labels:
            states.append({k: v for k, v in state.items() if _is_register(k)})
            state = state | {"left": INT(1)}
            state = self.advance.step(label, state, PLAIN)
        return state, states

    def once_back(
        self, labels: list[Label], states: list[State], state: State
    ) -> State:
        """Sweep them back, the last first."""
        going = Tapeless(self.compiled, self.operands)
        for label, registers in reversed([*zip(labels, states, strict=True)]):
            state = state | registers | {"left": INT(1)}
            state = going.step(label, state, PLAIN)
        return state

    # Parts ------------------------------------------------------------------------

    def advance_parts(self, state: State) -> tuple[State, State]:
        """Run all but the last; also the registers at their starts."""
        parts = self.parts
        carried = self.carried(state, self.advance.changes(self.label))
        kept = self.compiled.layout.resumed.intersection(carried.others)
        if not parts.full:
            return state, {}

        def part(carry: list[Any], number: Any) -> tuple[list[Any], State]:
            first = number * self.kind(parts.steps)

            def step(i: Any, carry: list[Any]) -> list[Any]:
                now = self.now(state | carried.state(carry), first + i)
                after = self.advance.step(self.label, now, PLAIN)
                return carried.values(after)

            begun = {k: v for k, v in carried.state(carry).items() if k in kept}
            steps = self.kind(0), self.kind(parts.steps)
            return lax.fori_loop(*steps, step, carry), begun

        numbers = jnp.arange(parts.full, dtype=self.kind)
        carry, starts = lax.scan(part, carried.values(state), numbers)
        return state | carried.state(carry), starts

    def reverse_parts(self, state: State, starts: State) -> State:
        """Sweep them back, each from the registers at its start."""
        parts = self.parts
        if not parts.full:
            return state
        changed = self.tape.changes(self.label) | self.reverse.changes(self.label)
        carried = self.carried(state, {k for k in changed if not _is_register(k)})

        def part(carry: list[Any], given: Any) -> tuple[list[Any], None]:
            number, begun = given
            first = number * self.kind(parts.steps)
            now = state | carried.state(carry) | begun
            after, tape = self.forth(now, first, parts.steps)
            return carried.values(self.back(after, tape, first, parts.steps)), None

        numbers = jnp.arange(parts.full, dtype=self.kind)
        given = numbers, starts
        carry, _ = lax.scan(part, carried.values(state), given, reverse=True)
        return state | carried.state(carry)

    def forth(self, state: State, first: Any, steps: int) -> tuple[State, list[Any]]:
        """Run steps; also what the way back needs of them, a row for each."""
        carried = self.carried(state, self.tape.changes(self.label))
        known = self.known_values(first)

        def step(carry: list[Any], i: Any) -> tuple[list[Any], list[Any]]:
            now = self.now(state | carried.state(carry), first + i)
            after, values = self.tape.run(self.taped, now, PLAIN)
            rows = [v for v, k in zip(values, known, strict=True) if k is None]
            return carried.values(after), rows

        numbers = jnp.arange(steps, dtype=self.kind)
        carry, tape = lax.scan(step, carried.values(state), numbers)
        return state | carried.state(carry), tape

    def back(self, state: State, tape: list[Any], first: Any, steps: int) -> State:
        """Sweep steps back, the last first."""
        carried = self.carried(state, self.reverse.changes(self.label))

        def step(carry: list[Any], given: Any) -> tuple[list[Any], None]:
            i, rows = given[0], iter(given[1])
            known = self.known_values(first + i)
            values = [next(rows) if k is None else k for k in known]
            now = self.now(state | carried.state(carry), first + i)
            after = self.reverse.swept(self.taped, values, now, PLAIN)
            return carried.values(after), None

        given = jnp.arange(steps, dtype=self.kind), tape
        carry, _ = lax.scan(step, carried.values(state), given, reverse=True)
        return state | carried.state(carry)

    # Steps ------------------------------------------------------------------------

    def now(self, state: State, number: Any) -> State:
        """The state before a step of the loop."""
        return state | self.at(number) | {"left": number, "taped": number}

    def at(self, number: Any) -> State:
        """The registers that count steps, before a step."""
        steps = jnp.asarray(number, self.kind)
        first = self.counted
        return {p: after_steps(first[p], by, steps) for p, by in self.counters.items()}

    def carried(self, state: State, keys: set[Any]) -> Carried:
        """What a loop carries of the keys that a pass changes."""
        keys = keys - _OWN - self.counters.keys()
        own = {k: state[k] for k in keys if not _is_pool(k)}
        return Carried(own, together=False)

    def known_values(self, number: Any) -> list[Any]:
        """For each value that a step tapes, what it is if that is a count of steps."""
        code, where, at = self.taped.code, self.compiled.layout.where, self.at(number)
        taped = self.taped.halves.taped.jaxpr
        ins = dict(zip(taped.invars, code.ins, strict=False))
        outs = taped.outvars[len(code.jaxpr.out_avals) :]
        known = [None if isinstance(v, core.Literal) else ins.get(v) for v in outs]
        sources = [*known, *self.taped.counts()]
        return [at.get(where[v]) if v in where else None for v in sources]

    def counts(self) -> list[Any]:
        """What this sweep does, in numbers."""
        count, steps, _ = self.parts
        length = self.compiled.program.length or 0
        counts = SweepCounts(
            INT(length), INT(count * steps), INT(count), INT(count), np.int32(count)
        )
        return [jnp.asarray(each) for each in counts if each is not None]


def _only_block(item: Any) -> Label:
    (block,) = item.items
    return block.label


def _is_register(key: Any) -> bool:
    return isinstance(key, Location) and key.kind == "register"


def _is_pool(key: Any) -> bool:
    return isinstance(key, tuple) and key[0] == "pool"

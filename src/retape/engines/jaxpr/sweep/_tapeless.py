"""Stages of one step: taped and swept back at once, without a tape.

Where a stage is a single step, what would go on the tape is read back at once. So the
step is linearised and pulled back in one piece of code, and what goes between the two
halves is the compiler's own to place: it shares that room with the other blocks, since
only one of them runs at a time. That is how a program whose blocks are dear (a layer
of a network) is reversed: no array is written to a tape and read again, and a
step needs no more memory than its derivative does anywhere.

    taped:   run block, push residuals;  pop residuals, pull back
    direct:  cotangents += (vjp of block)(cotangents)

The block's own results are not computed, but for those of the program's last block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.extend import core

from retape.engines.jaxpr.codegen._allocate import WRITTEN
from retape.engines.jaxpr.codegen._compiled import Compiled, step_vjps
from retape.engines.jaxpr.codegen._linearize import TapedCode
from retape.engines.jaxpr.ir._ir import Label
from retape.engines.jaxpr.nest._resumable_nest import Guard, State
from retape.engines.jaxpr.sweep._forward import Forward, assign, inputs, written
from retape.engines.jaxpr.sweep._pin import after_results, ordered, pinned_state
from retape.engines.jaxpr.sweep._reverse import (
    add_cotangents,
    cotangents_out,
    cotangents_touched,
)
from retape.engines.jaxpr.sweep._state import evaluate_block


class Tapeless(Forward):
    """Reverses the one step before which the registers stand."""

    def __init__(
        self, compiled: Compiled, operands: Sequence[Any], *, thrift: bool = False
    ) -> None:
        super().__init__(compiled, operands)
        self.thrift = thrift
        self.codes = step_vjps(compiled, thrift)

    def changes(self, label: Label) -> set[Any]:
        return {*pulled_changes(self.compiled, self.compiled.taped[label]), "left"}

    def passes_over(self, label: Label) -> bool:
        del label
        return False

    def step(self, label: Label, state: State, guard: Guard) -> State:
        taped = self.compiled.taped[label]
        state = pinned_state(self.compiled, taped.code, state, set())
        truth = state["left"] > 0
        given = [truth] if self.thrift else []
        state = pulled(
            self.compiled,
            taped,
            self.codes[label],
            self.operands,
            state,
            "left",
            guard,
            given,
        )
        return state | {"left": state["left"] - 1}


def pulled_changes(compiled: Compiled, taped: TapedCode) -> set[Any]:
    """Keys of the state that `pulled` changes."""
    touched = cotangents_touched(compiled, taped)
    if not taped.ending:
        return touched
    return {*touched, *written(compiled, taped.code), "pc", WRITTEN}


def pulled(
    compiled: Compiled,
    taped: TapedCode,
    jaxpr: core.ClosedJaxpr,
    operands: Sequence[Any],
    state: State,
    by: str,
    guard: Guard,
    first: Sequence[Any] = (),
) -> State:
    """Sweep a block back from its inputs; see `TapedCode.whole`.

    With the last block the program's outputs become known, and all rows are written.

    Args:
        compiled: The program.
        taped: The block.
        jaxpr: Its derivative.
        operands: Those of the program.
        state: Its registers are those before the block.
        by: A count in the state, not negative, which the loop around changes.
        guard: How the step is run.
        first: What the derivative takes before the block's inputs.
    """
    code, where = taped.code, compiled.layout.where
    counts = {v: state[where[v]] for v in code.counters()}
    values = inputs(compiled, code, operands, state)
    if code.taken:
        numbers = core.jaxpr_as_fun(code.placing)(*values)
        counts |= zip(code.numbers, numbers, strict=True)
    state = dict(state)
    cotangents = cotangents_out(compiled, taped, counts, state, guard.ok)
    cotangents = ordered(jaxpr, cotangents, state[by])
    given, truth = [*first, *values, *cotangents], guard.truth(state[by])
    found = evaluate_block(jaxpr, given, truth, keeps_branches=bool(first))
    n = len(taped.active_ins)
    results, late = found[n:], compiled.turned(taped)
    pairs = zip(taped.active_ins, found[:n], strict=True)
    cotangents = [after_results(d, results) if i in late else d for i, d in pairs]
    add_cotangents(compiled, taped, cotangents, counts, state, guard.ok)
    if not taped.ending:
        return state
    state = assign(compiled, code, results, state, guard.ok)
    return state | {WRITTEN: jnp.asarray(True)}

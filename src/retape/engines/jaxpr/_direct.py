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

import jax
import jax.numpy as jnp
from jax.extend import core
from jax.interpreters import partial_eval as pe

from ._backward import (
    add_cotangents,
    cotangent_out,
    cotangents_touched,
    in_turn,
)
from ._compile import Compiled
from ._effects import refuse_effects_of_rules
from ._forward import assign, inputs, pinned, written
from ._ir import Label
from ._layout import WRITTEN
from ._lean import lean
from ._nest import State, between
from ._remembered import remembered
from ._scalars import evaluate
from ._tape import TapedCode, no_rule
from ._turned import behind
from ._types import struct


def derivative(taped: TapedCode) -> core.ClosedJaxpr:
    """A block's whole derivative as one function.

    `(*ins, *rows, *cotangents of active_outs) -> (*those of active_ins)`, and in the
    last block `(*outs, *rows, next)` behind them.
    """
    code, chosen = taped.code, taped.active_ins
    run, n = core.jaxpr_as_fun(code.ruled), len(code.jaxpr.in_avals)

    def both(*values: Any) -> list[Any]:
        given, cotangents = list(values[:n]), list(values[n:])

        def partial(*active: Any) -> tuple[list[Any], list[Any]]:
            full = list(given)
            for i, v in zip(chosen, active, strict=True):
                full[i] = v
            outs = run(*full)
            return [outs[i] for i in taped.active_outs], outs

        if not taped.moves:
            return core.jaxpr_as_fun(code.jaxpr)(*given) if taped.ending else []
        _, pull, outs = jax.vjp(partial, *(given[i] for i in chosen), has_aux=True)
        return [*pull(cotangents), *(outs if taped.ending else ())]

    seeds = [code.jaxpr.out_avals[i].to_tangent_aval() for i in taped.active_outs]
    types = list(map(struct, (*code.jaxpr.in_avals, *seeds)))
    try:
        with jax.enable_x64(taped.wide):
            jaxpr = jax.make_jaxpr(both)(*types)
    except Exception as error:
        raise no_rule(code, error) from error
    refuse_effects_of_rules(jaxpr)
    used = [True] * len(jaxpr.jaxpr.outvars)
    slim, _ = pe.dce_jaxpr(jaxpr.jaxpr, used, instantiate=True)
    return core.ClosedJaxpr(slim, jaxpr.consts)


@remembered(64)
def derivatives(compiled: Compiled, thrift: bool) -> dict[Label, core.ClosedJaxpr]:
    """The derivatives of all blocks.

    Args:
        compiled: The program.
        thrift: Whether they hold less at once; then they take a truth in front.
    """
    found = {label: derivative(taped) for label, taped in compiled.taped.items()}
    if not thrift:
        return found
    wide = next(iter(compiled.taped.values())).wide
    with jax.enable_x64(wide):
        return {label: lean(jaxpr) for label, jaxpr in found.items()}


class Direct:
    """Reverses the one step before which the registers stand."""

    backwards = False

    def __init__(
        self, compiled: Compiled, operands: Sequence[Any], *, thrift: bool = False
    ) -> None:
        self.compiled = compiled
        self.operands = operands
        self.thrift = thrift
        self.codes = derivatives(compiled, thrift)

    def changes(self, label: Label) -> set[Any]:
        return {*pulled_changes(self.compiled, self.compiled.taped[label]), "left"}

    def guard(self, lo: int, hi: int, state: State) -> Any:
        return between(lo, hi, state["pc"]) & (state["left"] > 0)

    def step(self, label: Label, state: State) -> State:
        taped = self.compiled.taped[label]
        state = pinned(self.compiled, taped.code, state, set())
        truth = state["left"] > 0
        given = [truth] if self.thrift else []
        code = self.codes[label]
        state = pulled(self.compiled, taped, code, self.operands, state, "left", given)
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
    first: Sequence[Any] = (),
) -> State:
    """Sweep a block back from its inputs; see `derivative`.

    With the last block the program's outputs become known, and all rows are written.

    Args:
        compiled: The program.
        taped: The block.
        jaxpr: Its derivative.
        operands: Those of the program.
        state: Its registers are those before the block.
        by: A count in the state, not negative, which the loop around changes.
        first: What the derivative takes before the block's inputs.
    """
    code, where = taped.code, compiled.layout.where
    counts = {v: state[where[v]] for v in code.counters()}
    values = inputs(compiled, code, operands, state)
    cotangents = [
        cotangent_out(compiled, code, i, counts, state) for i in taped.active_outs
    ]
    cotangents = in_turn(jaxpr, cotangents, state[by])
    found = evaluate(jaxpr, [*first, *values, *cotangents], state[by] >= 0)
    n = len(taped.active_ins)
    state = dict(state)
    late = compiled.turned(taped)
    pairs = zip(taped.active_ins, found[:n], strict=True)
    cotangents = [behind(d, found[n:]) if i in late else d for i, d in pairs]
    add_cotangents(compiled, taped, cotangents, counts, state)
    if not taped.ending:
        return state
    return assign(compiled, code, found[n:], state) | {WRITTEN: jnp.asarray(True)}

"""The whole reverse step of a block in one jaxpr."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend import core

from retape.engines.jaxpr.codegen._block_function import take_cotangents
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.codegen._linearize import TapedCode
from retape.engines.jaxpr.codegen._rules_lacking import differentiable_run, no_rule
from retape.engines.jaxpr.intake._effects import refuse_effects_of_rules
from retape.engines.jaxpr.ir._ir import Label
from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._evaluate import dce, restricted
from retape.engines.jaxpr.jaxprs._row_ops import chosen_row
from retape.engines.jaxpr.xla._sink_weight_gradients import lean

_TRUTH = ShapedArray((), np.dtype(np.bool_))


def step_vjp(taped: TapedCode) -> core.ClosedJaxpr:
    """A block's whole derivative as one function.

    `(*ins, *rows, *cotangents of seeded_outs) -> (*those of active_ins)`, and in the
    last block `(*outs, *rows, *numbers, next)` behind them. If it takes cotangents from
    streams, it is given whether to, and those of the streams; and it gives them back.
    """
    code, chosen = taped.code, taped.active_ins
    run = differentiable_run(code.ruled, taped.active_outs)
    n, m = len(code.jaxpr.in_avals), len(taped.seeded_outs)

    def both(*values: Any) -> list[Any]:
        given, taking = list(values[:n]), values[n + m :]
        cotangents = dict(zip(taped.seeded_outs, values[n : n + m], strict=True))

        def taken(outs: Sequence[Any]) -> list[Any]:
            if not taking:
                return []
            _, numbers = code.results(outs)
            numbers = {v: chosen_row(taking[0], at) for v, at in numbers.items()}
            held = dict(zip(code.taken, taking[1:], strict=True))
            rows = take_cotangents(code, taped.active_outs, numbers, held)
            cotangents.update(rows)
            return list(held.values())

        def active_and_all(*values: Any) -> tuple[list[Any], list[Any]]:
            outs = run(*values)
            return [outs[i] for i in taped.active_outs], outs

        if not taped.has_derivative:
            outs = core.jaxpr_as_fun(code.jaxpr)(*given)
            return [*taken(outs), *(outs if taped.ending else ())]
        partial = restricted(active_and_all, given, chosen)
        _, pull, outs = jax.vjp(partial, *(given[i] for i in chosen), has_aux=True)
        streams = taken(outs)
        pulled = pull([cotangents[i] for i in taped.active_outs])
        return [*pulled, *streams, *(outs if taped.ending else ())]

    seeds = [code.jaxpr.out_avals[i].to_tangent_aval() for i in taped.seeded_outs]
    if code.taken:
        seeds += [_TRUTH, *(v.aval.to_tangent_aval() for v in code.taken)]
    types = list(map(struct, (*code.jaxpr.in_avals, *seeds)))
    try:
        with jax.enable_x64(taped.wide):
            jaxpr = jax.make_jaxpr(both)(*types)
    except Exception as error:
        raise no_rule(code.ruled, chosen, error) from error
    refuse_effects_of_rules(jaxpr)
    return dce(jaxpr)


@cached(64)
def step_vjps(compiled: Compiled, thrift: bool) -> dict[Label, core.ClosedJaxpr]:
    """The derivatives of all blocks.

    Args:
        compiled: The program.
        thrift: Whether they hold less at once; then they take a truth in front.
    """
    found = {label: step_vjp(taped) for label, taped in compiled.taped.items()}
    if not thrift:
        return found
    wide = next(iter(compiled.taped.values())).wide
    with jax.enable_x64(wide):
        return {label: lean(jaxpr) for label, jaxpr in found.items()}


@cached(64)
def whole_vjp(taped: TapedCode) -> core.ClosedJaxpr:
    """The last block's derivative, with its results; see `_direct.derivative`."""
    return step_vjp(taped)

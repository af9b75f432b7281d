"""The whole reverse step of a block in one jaxpr."""

from __future__ import annotations

from typing import Any

import jax
from jax.extend import core

from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.codegen._linearize import TapedCode
from retape.engines.jaxpr.codegen._rules_lacking import differentiable_run, no_rule
from retape.engines.jaxpr.intake._effects import refuse_effects_of_rules
from retape.engines.jaxpr.ir._ir import Label
from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._evaluate import dce, restricted
from retape.engines.jaxpr.xla._sink_weight_gradients import lean


def step_vjp(taped: TapedCode) -> core.ClosedJaxpr:
    """A block's whole derivative as one function.

    `(*ins, *rows, *cotangents of active_outs) -> (*those of active_ins)`, and in the
    last block `(*outs, *rows, next)` behind them.
    """
    code, chosen = taped.code, taped.active_ins
    run = differentiable_run(code.ruled, taped.active_outs)
    n = len(code.jaxpr.in_avals)

    def both(*values: Any) -> list[Any]:
        given, cotangents = list(values[:n]), list(values[n:])

        def active_and_all(*values: Any) -> tuple[list[Any], list[Any]]:
            outs = run(*values)
            return [outs[i] for i in taped.active_outs], outs

        if not taped.has_derivative:
            return core.jaxpr_as_fun(code.jaxpr)(*given) if taped.ending else []
        partial = restricted(active_and_all, given, chosen)
        _, pull, outs = jax.vjp(partial, *(given[i] for i in chosen), has_aux=True)
        return [*pull(cotangents), *(outs if taped.ending else ())]

    seeds = [code.jaxpr.out_avals[i].to_tangent_aval() for i in taped.active_outs]
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

"""Give operations inside of library functions the line of the user's call.

JAX traces its own jitted functions once, so that what is in them knows no line of the
user's. The engine writes such a body in place of the call; here it takes along the
line of that call:

    jit[norm] at model.py:7 { sqrt at ? }     ->     sqrt at model.py:7
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend import core

from retape.engines.jaxpr.jaxprs._evaluate import bind, evaluate
from retape.engines.jaxpr.jaxprs._jax_internals import as_written, source_line
from retape.engines.jaxpr.jaxprs._rewrite import rewrite
from retape.engines.jaxpr.jaxprs._subprogram import closed


def with_lines(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program, in which calls of library functions are replaced by their bodies."""
    return rewrite(jaxpr, _is_of_library, _in_place)


def _is_of_library(eqn: core.JaxprEqn) -> bool:
    if eqn.primitive.name not in ("jit", "pjit") or eqn.effects or not source_line(eqn):
        return False
    return any(not source_line(e) for e in closed(eqn.params["jaxpr"]).eqns)


def _in_place(call: core.JaxprEqn, values: Sequence[Any]) -> list[Any]:
    def rule(eqn: core.JaxprEqn, ins: list[Any]) -> list[Any]:
        if source_line(eqn):
            return bind(eqn, ins)
        if eqn.primitive.name in ("jit", "pjit"):
            return evaluate(closed(eqn.params["jaxpr"]), ins, rule)
        with as_written(call), eqn.ctx.manager:
            params = eqn.primitive.get_bind_params(eqn.params)
            out = eqn.primitive.bind(*ins, **params)
        return list(out) if eqn.primitive.multiple_results else [out]

    return evaluate(closed(call.params["jaxpr"]), values, rule)

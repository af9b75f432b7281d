"""Operations that JAX cannot differentiate: let be where no derivative is asked, named.

The test of a loop may read `lax.pmax` of what carries a derivative, or a callback, for
plain JAX does not differentiate tests. A block is one function of all that it computes,
its test among it. So where an operation without a rule leads to none of the results
that have a derivative, nothing is asked of it:

    before:  m = pmax v;  going = m > 0.5;  w = sin v            JAX: no rule for `pmax`
    after:   m = pmax (stop_gradient v);  going = m > 0.5;  w = sin v
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax import lax
from jax.extend import core

from retape._errors import UnsupportedError
from retape.engines.jaxpr.analysis._activity import flow, programs_inside
from retape.engines.jaxpr.jaxprs._avals import is_inexact, struct
from retape.engines.jaxpr.jaxprs._evaluate import bind, evaluate, vjp_by, which
from retape.engines.jaxpr.jaxprs._jax_internals import source_line
from retape.engines.jaxpr.jaxprs._primitive_table import has_no_rule
from retape.engines.jaxpr.jaxprs._subprogram import variables

_SHOWN = 8
"""Operations in an error's text."""


def differentiable_run(
    jaxpr: core.ClosedJaxpr, wanted: Sequence[int]
) -> Callable[..., Any]:
    """The program for JAX to differentiate, from its inputs to the outputs wanted."""
    idle = _idle(jaxpr, wanted)
    if not idle:
        return core.jaxpr_as_fun(jaxpr)

    def rule(eqn: core.JaxprEqn, values: list[Any]) -> list[Any]:
        if id(eqn) not in idle:
            return bind(eqn, values)
        return bind(eqn, [lax.stop_gradient(v) for v in values])

    return lambda *values: evaluate(jaxpr, values, rule)


def _idle(jaxpr: core.ClosedJaxpr, wanted: Sequence[int]) -> set[int]:
    """Operations without a rule that lead to none of these outputs."""
    leading = set(variables([jaxpr.jaxpr.outvars[i] for i in wanted]))
    idle: set[int] = set()
    for eqn in reversed(jaxpr.eqns):
        if any(v in leading and is_inexact(v.aval) for v in eqn.outvars):
            leading.update(variables(eqn.invars))
        elif has_no_rule(eqn):
            idle.add(id(eqn))
    return idle


def no_rule(
    jaxpr: core.ClosedJaxpr, active: Sequence[int], error: Exception
) -> Exception:
    """The error of a program that JAX cannot differentiate, with the user's lines.

    Args:
        jaxpr: The program.
        active: Positions of the inputs by which it is differentiated.
        error: What JAX says.
    """
    flags = [i in active for i in range(len(jaxpr.in_avals))]
    at_fault = list(_lacking(jaxpr, flags))
    eqns = at_fault or jaxpr.eqns
    lines = dict.fromkeys(f"`{e.primitive.name}` at {source_line(e)}" for e in eqns)
    shown = "; ".join(list(lines)[:_SHOWN])
    many = len(lines) > 1
    where = (
        f"It is {'these operations' if many else 'the operation'} {shown}"
        if at_fault
        else f"It is among these operations: {shown}"
    )
    return UnsupportedError(
        f"JAX has no reverse-mode rule for a part of the program: {error}\n"
        f"{where}. Give {'them' if many else 'it'} a derivative with `jax.custom_vjp` "
        "(or `jax.custom_jvp`), or cut the derivative with `jax.lax.stop_gradient`."
    )


def _lacking(
    jaxpr: core.ClosedJaxpr, active: Sequence[bool]
) -> Iterator[core.JaxprEqn]:
    """The innermost operations that JAX does not differentiate by themselves."""
    for eqn, ins, outs in flow(jaxpr, active):
        if not any(outs) or _has_rule(eqn, ins):
            continue
        inner = [
            e
            for body, flags in programs_inside(eqn, ins)
            for e in _lacking(body, flags)
        ]
        yield from inner or [eqn]


def _has_rule(eqn: core.JaxprEqn, active: Sequence[bool]) -> bool:
    chosen = which(active)
    moved = [i for i, v in enumerate(eqn.outvars) if is_inexact(v.aval)]

    def both(*values: Any) -> Any:
        outs, pull = vjp_by(lambda *v: bind(eqn, list(v)), values, chosen, moved)
        return pull([outs[i] for i in moved])

    try:
        jax.make_jaxpr(both)(*(struct(a.aval) for a in eqn.invars))
    except Exception:
        return False
    return True

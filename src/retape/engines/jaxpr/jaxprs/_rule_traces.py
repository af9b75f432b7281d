"""What custom rules trace to: by this programs with rules are known again.

JAX wraps a rule anew each time that a program is traced, and Python may have changed
what it does: a global, a closure. So a rule is told by the program that it is now: it
is traced when the program that calls it is seen, and kept beside that. A rule that
calls its own function (that of `jax.nn.relu` does) would be traced for ever, so inside
itself it is a number: how many rules further out it stands.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import jax
from jax.extend import core

from retape.engines.jaxpr.jaxprs._avals import is_inexact, struct
from retape.engines.jaxpr.jaxprs._evaluate import bind, jvp_by, vjp_by
from retape.engines.jaxpr.jaxprs._jax_internals import rule_functions
from retape.engines.jaxpr.jaxprs._primitive_table import Also, is_a
from retape.engines.jaxpr.jaxprs._rewrite import contains, programs_of

RULE_PARAMETERS = frozenset(("jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "out_trees"))
"""Parameters of a call that are its rule."""

_DEEPEST = 6
"""Rules in rules in rules: then one is taken to be another each time."""


class RuleTrace(NamedTuple):
    """A rule as a program, and the rules in that."""

    jaxpr: core.ClosedJaxpr
    inner: tuple[Told, ...]


Told: TypeAlias = RuleTrace | int | core.ClosedJaxpr
"""A rule; or a program of ours that calls some, which is found again by itself."""


class _UntraceableError(Exception):
    """A rule that is never the same."""


def rule_traces(jaxpr: Any) -> tuple[Told, ...] | None:
    """The rules that a program calls, in order; `None` if one cannot be told."""
    try:
        return tuple(_traces(jaxpr, ()))
    except _UntraceableError:
        return None


def is_ruled(eqn: core.JaxprEqn) -> bool:
    """Whether an operation is a call with a rule of its own."""
    return not RULE_PARAMETERS.isdisjoint(eqn.params)


def _traces(jaxpr: Any, under: tuple[Any, ...]) -> list[Told]:
    found: list[Told] = []
    for eqn in jaxpr.eqns:
        if is_ruled(eqn):
            found.append(_trace_of(eqn, under))
        if is_a(eqn, Also.OWN_SWEEP) and "plan" in eqn.params:
            ours = [v for v in eqn.params.values() if isinstance(v, core.ClosedJaxpr)]
            found += [program for program in ours if contains(program, is_ruled)]
            continue
        for inner in programs_of(eqn):
            found += _traces(inner, under)
    return found


def _trace_of(eqn: core.JaxprEqn, under: tuple[Any, ...]) -> RuleTrace | int:
    functions = rule_functions(eqn)
    # Of a rule that is told which tangents are zero there are many.
    if functions is None or eqn.params.get("symbolic_zeros") or len(under) > _DEEPEST:
        raise _UntraceableError
    me = functions, tuple(a.aval for a in eqn.invars)
    if me in under:
        return under[::-1].index(me)
    try:
        types = [struct(a.aval) for a in eqn.invars]
        made = jax.make_jaxpr(_derivative(eqn))(*types)
    except Exception as error:
        # It wants numbers, or the derivative is none: what it is shows later.
        raise _UntraceableError from error
    if made.effects:
        raise _UntraceableError
    return RuleTrace(made, tuple(_traces(made, (*under, me))))


def _derivative(eqn: core.JaxprEqn) -> Any:
    """The derivative of an operation: at each point, along it or of its results."""
    chosen = [i for i, a in enumerate(eqn.invars) if is_inexact(a.aval)]
    moved = [i for i, v in enumerate(eqn.outvars) if is_inexact(v.aval)]

    def both(*values: Any) -> Any:
        def run(*values: Any) -> list[Any]:
            outs = bind(eqn, list(values))
            return [outs[i] for i in moved]

        if "jvp_jaxpr_fun" in eqn.params:
            return jvp_by(run, values, chosen, [values[i] for i in chosen])
        outs, pull = vjp_by(run, values, chosen)
        return outs, pull(outs)

    return both

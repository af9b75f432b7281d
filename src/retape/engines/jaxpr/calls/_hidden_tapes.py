"""Warn of a custom reverse rule that keeps a tape which no plan governs.

A `jax.custom_vjp` call is one operation: its forward rule says what is kept for its
backward rule. If its primal holds a loop, and what is kept is more than the call's own
inputs and outputs, then the rule stores (a part of) the loop's history itself, and a
plan cannot lower that. An implicit derivative of a converged iteration keeps no more
than the solution, and is not warned of.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from jax.extend import core

from retape._bytes import format_bytes
from retape._errors import RetapeWarning
from retape.engines.jaxpr.analysis._activity import flow, programs_inside
from retape.engines.jaxpr.intake._known_rules import rule_of
from retape.engines.jaxpr.jaxprs._avals import nbytes, struct
from retape.engines.jaxpr.jaxprs._evaluate import bind, stored_by, which
from retape.engines.jaxpr.jaxprs._jax_internals import source_line
from retape.engines.jaxpr.jaxprs._primitive_table import Also, is_a
from retape.engines.jaxpr.jaxprs._rewrite import contains
from retape.engines.jaxpr.jaxprs._subprogram import closed


def warn_of_hidden_tapes(jaxpr: core.ClosedJaxpr, active: Sequence[bool]) -> None:
    """Name each call of a custom rule that hides a loop and keeps a tape of its own.

    Args:
        jaxpr: The program that is differentiated.
        active: For each input, whether a derivative by it is wanted.
    """
    if not contains(jaxpr, _is_custom):
        return
    for eqn, flags in _custom_calls(jaxpr, active):
        if not contains(closed(eqn.params["call_jaxpr"]), _is_loop):
            continue
        kept, passed = _kept_bytes(eqn, flags), _passed_bytes(eqn)
        if kept > passed:
            warnings.warn(_warning_text(eqn, kept, passed), RetapeWarning, stacklevel=2)


def _custom_calls(
    jaxpr: core.ClosedJaxpr, active: Sequence[bool]
) -> Iterator[tuple[Any, list[bool]]]:
    """Every custom reverse rule that a derivative goes through, at any depth."""
    for eqn, ins, outs in flow(jaxpr, active):
        if not any(outs):
            continue
        if _is_custom(eqn):
            yield eqn, ins
        for body, flags in programs_inside(eqn, ins):
            yield from _custom_calls(body, flags)


def _is_custom(eqn: core.JaxprEqn) -> bool:
    return eqn.primitive.name == "custom_vjp_call"


def _is_loop(eqn: core.JaxprEqn) -> bool:
    return is_a(eqn, Also.LOOP)


def _kept_bytes(eqn: Any, active: Sequence[bool]) -> int:
    """Bytes that the forward rule keeps for the backward rule."""
    moving = which(active)
    structs = [struct(v.aval) for v in eqn.invars]
    try:
        kept = stored_by(lambda *values: bind(eqn, list(values)), structs, moving)
    except Exception:
        # The rule refuses this derivative: compiling the sweep raises its own error.
        return 0
    return sum(map(nbytes, kept.out_avals))


def _passed_bytes(eqn: Any) -> int:
    return sum(nbytes(v.aval) for v in (*eqn.invars, *eqn.outvars))


def _warning_text(eqn: Any, kept: int, passed: int) -> str:
    rule = rule_of(eqn)
    name = getattr(rule, "__qualname__", None) or getattr(rule, "__name__", "a rule")
    at, own, ends = source_line(eqn), format_bytes(kept), format_bytes(passed)
    return (
        f"The reverse rule `{name}` of the `jax.custom_vjp` at {at} hides a loop from "
        f"the plan: it keeps {own} of its own, where its inputs and outputs are {ends}."
        " The gradient is right, but this part of the memory is not what the plan "
        "says. Call the loop without the custom rule; with diffrax pass "
        "`adjoint=retape.diffrax.RetapeAdjoint(plan=...)`, with Optimistix "
        "`adjoint=retape.optimistix.RetapeAdjoint(plan=...)`."
    )

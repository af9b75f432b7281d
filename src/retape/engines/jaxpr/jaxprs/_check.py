"""The checker of jaxprs: run on what a pass makes of one.

A broken rule here is a fault of ours, never the user's, so these are assertions. JAX's
own `core.check_jaxpr` types every equation again, which costs as much as tracing; what
is looked at here is what a rewriting can get wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jax.extend import core

from retape.engines.jaxpr.jaxprs._avals import varying
from retape.engines.jaxpr.jaxprs._rewrite import programs_of
from retape.engines.jaxpr.jaxprs._subprogram import variables


def check_rewritten(before: core.ClosedJaxpr, after: core.ClosedJaxpr) -> None:
    """Check that one program may stand in the place of another.

    It takes and returns values of the same types, has no new effect, and reads no value
    before it is made.
    """
    if after is before:
        return
    for old, new, what in (
        (before.in_avals, after.in_avals, "inputs"),
        (before.out_avals, after.out_avals, "outputs"),
    ):
        assert value_types(new) == value_types(old), f"other {what}"
        assert [*map(varying, new)] == [*map(varying, old)], f"other axes of {what}"
    assert after.effects <= before.effects, "an effect that was not there"
    assert len(after.consts) == len(after.jaxpr.constvars), "a constant without a value"
    check_scope(after.jaxpr)


def check_scope(jaxpr: Any) -> None:
    """Check that every variable is made once, and read after it is made."""
    known = {*jaxpr.constvars, *jaxpr.invars}
    assert len(known) == len(jaxpr.constvars) + len(jaxpr.invars), "two inputs are one"
    for eqn in jaxpr.eqns:
        early = [v for v in variables(eqn.invars) if v not in known]
        assert not early, f"{early} read by `{eqn.primitive.name}` before it is made"
        again = known.intersection(eqn.outvars)
        assert not again, f"{again} made twice"
        known.update(eqn.outvars)
        for inner in programs_of(eqn):
            check_scope(inner)
    lost = [v for v in variables(jaxpr.outvars) if v not in known]
    assert not lost, f"{lost} returned and never made"


def value_types(avals: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Shapes and element types; weak types may have become firm."""
    return [(a.shape, a.dtype) for a in avals]

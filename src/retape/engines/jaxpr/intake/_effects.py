"""Side effects: they happen once, in the order of the program itself.

A sweep runs steps again. So what it runs is the program without its effects, and the
program with them is run once beside it; XLA drops from that second copy whatever no
effect needs.

    jax.debug.print, jax.debug.callback, callbacks that return nothing   once
    references made inside (`jax.new_ref`)    become values that are passed on
    effects whose result the program uses     refused, with the user's line
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax
from jax.extend import core

from retape._errors import UnsupportedError
from retape.engines.jaxpr.jaxprs._jax_internals import (
    changes_reference,
    is_reference,
    jaxprs_in_params,
    names_an_axis,
    source_line,
    without_references,
)
from retape.engines.jaxpr.jaxprs._primitive_table import Also, is_a
from retape.engines.jaxpr.jaxprs._rewrite import contains, rewrite
from retape.engines.jaxpr.jaxprs._subprogram import closed, variables


def take_out(
    jaxpr: core.ClosedJaxpr,
) -> tuple[core.ClosedJaxpr, core.ClosedJaxpr | None]:
    """A program without effects, and the one with them if it has any.

    Raises:
        UnsupportedError: Names an effect that cannot be taken out, and its line.
    """
    _refuse_references(jaxpr.jaxpr)
    if not side_effects(jaxpr):
        return jaxpr, None
    contains(jaxpr, _refuse_hidden_reference)
    jaxpr = without_references(jaxpr)
    pure = rewrite(jaxpr, _acts, _nothing)
    if side_effects(pure):
        raise AssertionError(f"effects are left: {side_effects(pure)}")
    return pure, _without_marks(jaxpr) if side_effects(jaxpr) else None


def let_happen(acting: core.ClosedJaxpr | None, values: Sequence[Any]) -> None:
    """Run the program that has the effects, for nothing else."""
    if acting is None:
        return
    # What the function closes over is among the constants, and may be differentiated.
    fixed = core.ClosedJaxpr(acting.jaxpr, list(map(lax.stop_gradient, acting.consts)))
    core.jaxpr_as_fun(fixed)(*map(lax.stop_gradient, values))


def refuse_effects_of_rules(jaxpr: core.ClosedJaxpr) -> None:
    """Refuse effects in the derivative rules of the user's custom functions.

    Raises:
        UnsupportedError: Names the first, with its line.
    """
    if side_effects(jaxpr):
        contains(jaxpr, _refuse_if_it_acts)


def side_effects(code: Any) -> set[Any]:
    """The effects of a jaxpr or an equation that must not happen twice."""
    return {e for e in code.effects if not names_an_axis(e)}


def _without_marks(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program, no part of it marked by `jax.checkpoint`.

    JAX before 0.11 drops a marked part as dead code, effects and all, if none of its
    results is read and it reads none of its inputs.
    """
    while contains(jaxpr, _is_marked):
        jaxpr = rewrite(jaxpr, _is_marked, _unmarked)
    return jaxpr


def _is_marked(eqn: core.JaxprEqn) -> bool:
    return is_a(eqn, Also.REMAT)


def _unmarked(eqn: core.JaxprEqn, values: Sequence[Any]) -> list[Any]:
    return core.jaxpr_as_fun(closed(eqn.params["jaxpr"]))(*values)


def _acts(eqn: core.JaxprEqn) -> bool:
    """Tell whether an equation has an effect of its own, not that of code inside it."""
    return bool(side_effects(eqn)) and not any(
        side_effects(j) for j in jaxprs_in_params(eqn.params)
    )


def _nothing(eqn: core.JaxprEqn, values: Sequence[Any]) -> list[Any]:
    """The replacement of an effect that returns nothing."""
    del values
    if eqn.outvars:
        raise _cannot(eqn)
    return []


def _refuse_if_it_acts(eqn: core.JaxprEqn) -> bool:
    if _acts(eqn):
        raise UnsupportedError(
            f"`{eqn.primitive.name}` at {source_line(eqn)} is a side effect in the "
            "derivative rule of a custom function. Steps are linearised where the "
            "plan says, so it would happen at other times than under `jax.grad`. "
            "Take it out of the rule, or use `jax.grad` for this function."
        )
    return False


def _refuse_references(jaxpr: core.Jaxpr) -> None:
    """Refuse references from outside, also where no effect tells of them.

    The primal of a custom rule may leave to its reverse rule what it does with one.
    """
    outside = [v for v in (*jaxpr.constvars, *jaxpr.invars) if is_reference(v.aval)]
    readers = (e for e in jaxpr.eqns if not {*outside}.isdisjoint(variables(e.invars)))
    if outside:
        raise _reference_from_outside(next(readers, None))


def _refuse_hidden_reference(eqn: core.JaxprEqn) -> bool:
    """Refuse a reference that is handed to a custom rule, whose inside is not seen."""
    is_rule = eqn.primitive.name in ("custom_vjp_call", "custom_jvp_call")
    if is_rule and any(is_reference(a.aval) for a in eqn.invars):
        raise UnsupportedError(
            f"`{eqn.primitive.name}` at {source_line(eqn)} is handed a reference "
            "(`jax.new_ref`). Its rule is run more than once to save memory, so it "
            "would change the reference more than once. Hand it the value, and return "
            "the new one."
        )
    return False


def _reference_from_outside(eqn: core.JaxprEqn | None) -> UnsupportedError:
    at = (
        "The function"
        if eqn is None
        else f"`{eqn.primitive.name}` at {source_line(eqn)}"
    )
    return UnsupportedError(
        f"{at} reads or writes a reference (`jax.new_ref`) that was made outside "
        "the function. Steps are run more than once to save memory, so it would "
        "change more than once. Make the reference inside the function, or pass "
        "its value and return the new one."
    )


def _cannot(eqn: core.JaxprEqn) -> UnsupportedError:
    names = ", ".join(sorted(map(str, side_effects(eqn))))
    at = f"`{eqn.primitive.name}` at {source_line(eqn)}"
    if any(map(changes_reference, side_effects(eqn))):
        return _reference_from_outside(eqn)
    return UnsupportedError(
        f"{at} has a side effect (`{names}`) whose result the program uses. Steps are "
        "run more than once to save memory, so it would happen more than once. Use "
        "`jax.pure_callback` if running it again does no harm, or take it out of the "
        "function."
    )

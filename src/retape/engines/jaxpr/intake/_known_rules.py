"""Open custom reverse rules that are known to be the derivative of their own primal.

A `jax.custom_vjp` stays one operation of a block: its rule may be any function, so
nothing may be put in its place. The rule of Equinox's checkpointed `while_loop`, which
is that of diffrax's default adjoint, is the plain derivative of the loop that stands
in its primal, computed with snapshots of its own. Left closed it would hide the loop
from the plan; so the call is replaced by its primal:

    before:  y = custom_vjp_call[call_jaxpr={ while ... }, bwd=...] x
    after:   y = while[...] x

The rule is recognised by the object that wrote it, never by a name, and a call whose
rule is not recognised stays what it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from jax.extend import core

from retape.engines.jaxpr.jaxprs._rewrite import contains, rewrite
from retape.engines.jaxpr.jaxprs._subprogram import closed

_PLAIN_LOOPS = (("equinox.internal._loop.checkpointed", "_checkpointed_while_loop"),)
"""Where each such rule is, or a function that it reads from around it, as module and
attribute. (Tried with Equinox 0.13; in a release that moves it the call is left closed,
which is right, and a warning says so.)"""


Put = Callable[[core.ClosedJaxpr, Sequence[Any]], Sequence[Any]]
"""From the primal of a rule and its inputs to the results."""


def open_known_rules(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program with every known call replaced by its primal, at any depth."""
    return replace_known_rules(
        jaxpr, lambda primal, values: core.jaxpr_as_fun(primal)(*values)
    )


def replace_known_rules(jaxpr: core.ClosedJaxpr, put: Put) -> core.ClosedJaxpr:
    """The program with something put in the place of every known call, at any depth."""
    if not _loop_rules():
        return jaxpr

    def replace(eqn: core.JaxprEqn, values: Sequence[Any]) -> Sequence[Any]:
        with eqn.ctx.manager:
            return put(closed(eqn.params["call_jaxpr"]), values)

    # Asked before: a program with effects is made again in any case. One loop may stand
    # in another, so what was put in place is looked through again.
    while contains(jaxpr, _is_known_rule):
        jaxpr = rewrite(jaxpr, _is_known_rule, replace)
    return jaxpr


def rule_of(eqn: core.JaxprEqn) -> Any:
    """The user's function behind the reverse rule of a `custom_vjp` call.

    JAX wraps it, once for each transformation that the call went through; its own
    wrappers are seen through.
    """
    rule = eqn.params.get("bwd")
    for _ in range(_WRAPPERS):
        rule = getattr(rule, "f", rule)
        rule = getattr(rule, "func", rule)
        if (getattr(rule, "__module__", None) or "").partition(".")[0] != "jax":
            return rule
        inner = [c for c in _captured(rule) if hasattr(c, "call_wrapped")]
        if not inner:
            return rule
        rule = inner[0]
    return rule


_WRAPPERS = 64
"""More transformations than that around one call are not looked through."""


def _is_known_rule(eqn: core.JaxprEqn) -> bool:
    if eqn.primitive.name != "custom_vjp_call" or eqn.effects:
        return False
    rule = rule_of(eqn)
    signs = rule, *_captured(rule)
    return any(sign is known for sign in signs for known in _loop_rules())


def _loop_rules() -> list[Any]:
    modules = ((sys.modules.get(name), attribute) for name, attribute in _PLAIN_LOOPS)
    found = (getattr(module, attribute, None) for module, attribute in modules)
    return [each for each in found if each is not None]


def _captured(fun: Any) -> list[Any]:
    """What a function reads of the functions around it."""
    cells = getattr(fun, "__closure__", None) or ()
    values = []
    for cell in cells:
        try:
            values.append(cell.cell_contents)
        except ValueError:  # a cell that was not filled yet
            continue
    return values

"""Rewriting a program: some of its equations, however deep, replaced by others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend import core

from ._code import bind
from ._types import struct

Chooses = Callable[[core.JaxprEqn], bool]
Replaces = Callable[[core.JaxprEqn, Sequence[Any]], Sequence[Any]]


def contains(code: Any, chosen: Chooses) -> bool:
    """Whether an equation that is chosen stands in a jaxpr, or in one inside it."""
    return any(
        chosen(e) or any(contains(j, chosen) for j in core.jaxprs_in_params(e.params))
        for e in code.eqns
    )


def rewrite(
    jaxpr: core.ClosedJaxpr, chosen: Chooses, replace: Replaces
) -> core.ClosedJaxpr:
    """The program with every chosen equation replaced by what `replace` computes.

    Args:
        jaxpr: The program; its constants stay constants.
        chosen: Tells which equations to replace. One inside another is not seen.
        replace: From the equation and the values of its inputs to those of its outputs.
    """
    # The branches of a `cond` are given one another's effects, so one with effects is
    # made again even if nothing in it is replaced.
    if not contains(jaxpr, chosen) and not jaxpr.effects:
        return jaxpr

    def change(deeper: core.ClosedJaxpr) -> core.ClosedJaxpr:
        return rewrite(deeper, chosen, replace)

    def run(*values: Any) -> list[Any]:
        inner = jaxpr.jaxpr
        env: dict[Any, Any] = dict(zip(inner.constvars, jaxpr.consts, strict=True))
        env.update(zip(inner.invars, values, strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, core.Literal) else env[atom]

        for eqn in inner.eqns:
            ins = [read(a) for a in eqn.invars]
            if chosen(eqn):
                outs = replace(eqn, ins)
            else:
                params = {k: inside(v, change) for k, v in eqn.params.items()}
                outs = bind(eqn.replace(params=params), ins)
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(a) for a in inner.outvars]

    return jax.make_jaxpr(run)(*map(struct, jaxpr.in_avals))


def inside(param: Any, change: Callable[[core.ClosedJaxpr], core.ClosedJaxpr]) -> Any:
    """A parameter of an equation with the programs in it changed, or as it was."""
    if isinstance(param, core.ClosedJaxpr):
        return change(param)
    if isinstance(param, core.Jaxpr):
        return change(core.ClosedJaxpr(param, ())).jaxpr
    # Of a named tuple, such as a kind of random keys, only the type would be lost.
    if type(param) is tuple:
        parts = tuple(inside(p, change) for p in param)
        same = all(a is b for a, b in zip(parts, param, strict=True))
        return param if same else parts
    return param

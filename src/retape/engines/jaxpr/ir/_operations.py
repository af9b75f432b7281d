"""Going through a jaxpr with atoms in the place of its variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core

from retape.engines.jaxpr.analysis._activity import outputs
from retape.engines.jaxpr.analysis._opaque_primitives import passed_through
from retape.engines.jaxpr.ir._ir import Atom, Lit, Op, Var
from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._evaluate import Environment, evaluate
from retape.engines.jaxpr.jaxprs._primitive_table import Also, is_a
from retape.engines.jaxpr.jaxprs._subprogram import closed

Equation = Callable[[Any, list[Any]], Sequence[Any]]


def through(
    jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], equation: Equation
) -> list[Any]:
    """The atoms of a jaxpr's outputs, `equation` giving those of each equation's."""
    env = Environment(literal=lambda a: Lit(a.val, a.aval))
    return evaluate(jaxpr, args, equation, consts=consts, env=env)


def operations(
    jaxpr: core.ClosedJaxpr, args: Sequence[Atom]
) -> tuple[list[Op], list[Atom]] | None:
    """A jaxpr as operations, and its outputs; `None` if it has constants."""
    if jaxpr.consts:
        return None
    found: list[Op] = []

    def equation(eqn: Any, ins: list[Any]) -> Sequence[Any]:
        if is_a(eqn, Also.JIT):
            inner = closed(eqn.params["jaxpr"])
            consts = [Lit(c, v.aval) for c, v in _constants(inner)]
            return through(inner.jaxpr, consts, ins, equation)
        moving = [isinstance(a, Var) and a.active for a in ins]
        same = passed_through(eqn, moving)
        if same is not None:
            return [ins[same]]
        flags = outputs(eqn, moving)
        outs = tuple(Var(v.aval, a) for v, a in zip(eqn.outvars, flags, strict=True))
        found.append(Op(eqn, tuple(ins), outs))
        return outs

    return found, through(jaxpr.jaxpr, (), args, equation)


def code(fun: Callable[..., Any], ins: Sequence[Atom]) -> tuple[list[Op], list[Atom]]:
    """Code of our own as operations, and its results."""
    made = operations(jax.make_jaxpr(fun)(*(struct(a.aval) for a in ins)), ins)
    assert made is not None
    return made


def _constants(jaxpr: core.ClosedJaxpr) -> list[tuple[Any, Any]]:
    pairs = list(zip(jaxpr.consts, jaxpr.jaxpr.constvars, strict=True))
    assert all(np.ndim(c) == 0 for c, _ in pairs), "an array stands in a call"
    return pairs

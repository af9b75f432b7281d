"""What is known about the values of a jaxpr: its integers, by abstract interpretation.

Equation by equation, each by its rule. Where there is none only the type says anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend import core

from ._activity import called
from ._foreign import implementation
from ._interval_rules import RULES
from ._intervals import Int, Value, anything, constant, join


def interpret(jaxpr: core.ClosedJaxpr, ins: Sequence[Value]) -> list[Value]:
    """What is known about a jaxpr's outputs, from what is known about its inputs."""
    env = Known(jaxpr, ins)
    for eqn in jaxpr.jaxpr.eqns:
        env.learn(eqn)
    return [env.read(a) for a in jaxpr.jaxpr.outvars]


class Known:
    """What is known about a jaxpr's variables, equation by equation."""

    def __init__(self, jaxpr: core.ClosedJaxpr, ins: Sequence[Value]) -> None:
        inner = jaxpr.jaxpr
        self.values: dict[Any, Value] = dict(zip(inner.invars, ins, strict=True))
        for var, value in zip(inner.constvars, jaxpr.consts, strict=True):
            self.values[var] = constant(value, var.aval)

    def read(self, atom: Any) -> Value:
        """What is known about a variable or a literal."""
        if isinstance(atom, core.Literal):
            return constant(atom.val, atom.aval)
        return self.values.get(atom)

    def learn(self, eqn: Any) -> None:
        """Take in what an equation tells about its outputs."""
        outs = results(eqn, [self.read(a) for a in eqn.invars])
        self.values.update(zip(eqn.outvars, outs, strict=True))


def results(eqn: Any, ins: Sequence[Value]) -> list[Value]:
    """What is known about an equation's outputs."""
    unknown = [anything(v.aval) for v in eqn.outvars]
    if all(u is None for u in unknown):
        return unknown
    rule = RULES.get(eqn.primitive.name)
    if rule is not None:
        return [u if u is None else rule(eqn, *ins) for u in unknown]
    if eqn.primitive.name == "cond":
        return _cond(eqn, ins)
    if eqn.primitive.name in ("while", "scan"):
        return unknown
    body = called(eqn) or implementation(eqn)
    return unknown if body is None else interpret(body, ins)


def _cond(eqn: Any, ins: Sequence[Value]) -> list[Value]:
    index, *args = ins
    arms = list(eqn.params["branches"])
    if isinstance(index, Int) and index.base is None and index.fixed:
        arms = [arms[min(max(index.lo, 0), len(arms) - 1)]]
    outs = interpret(arms[0], args)
    for arm in arms[1:]:
        others = interpret(arm, args)
        outs = [
            join(a, b, v.aval)
            for a, b, v in zip(outs, others, eqn.outvars, strict=True)
        ]
    return outs

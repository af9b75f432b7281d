"""Range analysis of a jaxpr: abstract interpretation of its integers and truths.

Equation by equation, each by its rule. Where there is none only the type says anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend import core

from retape.engines.jaxpr.analysis._opaque_primitives import implementation
from retape.engines.jaxpr.analysis._range_rules import RULES
from retape.engines.jaxpr.analysis._ranges import Int, Range, constant, join, top
from retape.engines.jaxpr.jaxprs._evaluate import Environment
from retape.engines.jaxpr.jaxprs._primitive_table import callee


def interpret(jaxpr: core.ClosedJaxpr, ins: Sequence[Range]) -> list[Range]:
    """The abstract values of a jaxpr's outputs, from those of its inputs."""
    env = Known(jaxpr, ins)
    for eqn in jaxpr.jaxpr.eqns:
        env.learn(eqn)
    return [env.read(a) for a in jaxpr.jaxpr.outvars]


class Known(Environment):
    """The abstract values of a jaxpr's variables, equation by equation."""

    def __init__(self, jaxpr: core.ClosedJaxpr, ins: Sequence[Range]) -> None:
        super().__init__(literal=lambda a: constant(a.val, a.aval))
        inner = jaxpr.jaxpr
        self.write(inner.invars, ins)
        pairs = zip(inner.constvars, jaxpr.consts, strict=True)
        self.write(inner.constvars, [constant(c, v.aval) for v, c in pairs])

    def learn(self, eqn: Any) -> None:
        """Take in what an equation tells about its outputs."""
        self.run(eqn, ranges_of)


def ranges_of(eqn: Any, ins: Sequence[Range]) -> list[Range]:
    """The abstract values of an equation's outputs."""
    unknown = [top(v.aval) for v in eqn.outvars]
    if all(u is None for u in unknown):
        return unknown
    rule = RULES.get(eqn.primitive.name)
    if rule is not None:
        return [u if u is None else rule(eqn, *ins) for u in unknown]
    if eqn.primitive.name == "cond":
        return _cond_ranges(eqn, ins)
    if eqn.primitive.name in ("while", "scan"):
        return unknown
    body = callee(eqn) or implementation(eqn)
    return unknown if body is None else interpret(body, ins)


def _cond_ranges(eqn: Any, ins: Sequence[Range]) -> list[Range]:
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

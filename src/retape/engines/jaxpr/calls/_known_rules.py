"""Known rules in what JAX differentiates: each loop becomes a call of its own.

A rule that is known (`intake/_known_rules`) stands before a loop that JAX cannot
reverse. The step machine goes through that loop, so it is put in the rule's place. In a
marked function JAX takes the derivative of each piece. So there the loop is handed over
as a call, which has every derivative, of all orders, wherever JAX meets it:

    before:  y = custom_vjp_call[call_jaxpr={ while ... }, bwd=...] x
    after:   y = retape_call[while ...] x
"""

from __future__ import annotations

from jax.extend import core

from retape.engines.jaxpr.calls._rules import call
from retape.engines.jaxpr.intake._known_rules import (
    open_known_rules,
    replace_known_rules,
)


def call_known_rules(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program with every known rule a call of its primal, reversed by steps."""
    return replace_known_rules(
        jaxpr, lambda primal, values: call(open_known_rules(primal), None, values)
    )

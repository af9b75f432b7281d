"""Loops that devices leave at their own time: each a call of its own, if devices meet.

A sweep runs the steps between two of its snapshots again, and how often depends on how
many steps there are. So if a loop ends at another step on each device, everything in
its sweep is run another number of times on each. A collective among it would wait for
ever. Such a loop gets a sweep to itself, in which there is no collective:

    before:  x = x - pmean(x);  while (differs) { x = step(x) };      psum(x)
    after:   x = x - pmean(x);  x = retape_call[while (differs) ...]  x;  psum(x)

The call is one operation of whatever stands around it, also where that is swept again
(`Apart`): the derivative of a derivative meets no collective in a loop either. It costs
one more run of the loop, and what is not like this is refused (`lower/_own_lengths`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend import core

from retape.engines.jaxpr.analysis._own_lengths import (
    choice_of,
    copies,
    devices_run_apart,
    differs,
    meetings,
    tells,
)
from retape.engines.jaxpr.calls._rules import call
from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._evaluate import bind
from retape.engines.jaxpr.jaxprs._provenance import Apart
from retape.engines.jaxpr.jaxprs._rewrite import Chooses, contains, rewrite
from retape.engines.jaxpr.lower._hoist_pvary import hoist_pvary
from retape.plan._base import Plan


def call_own_lengths(jaxpr: core.ClosedJaxpr, plan: Plan | None) -> core.ClosedJaxpr:
    """The program of a device, in whose loops of its own no collective waits.

    Args:
        jaxpr: The program, traced inside `shard_map`.
        plan: The user's. A number of bytes is for one sweep, so nothing is taken apart.
    """
    if not devices_run_apart() or (plan is not None and plan.budget is not None):
        return jaxpr
    chosen = _chooser(jaxpr)
    if not contains(jaxpr, chosen):
        return jaxpr
    hoisted = hoist_pvary(jaxpr)
    if next(meetings(hoisted.eqns), None) or next(copies(hoisted.eqns), None):
        return rewrite(hoisted, chosen, lambda eqn, ins: _called(eqn, plan, ins))
    return jaxpr


def _chooser(jaxpr: core.ClosedJaxpr) -> Chooses:
    """Which loops end at another step on each device, and hold no collective."""
    # Without types that tell, every loop may; one with a collective in it cannot, or
    # the program itself would wait for ever.
    may_differ = differs if tells(jaxpr) else lambda eqn: choice_of(eqn) is not None

    def chosen(eqn: core.JaxprEqn) -> bool:
        return may_differ(eqn) and next(meetings([eqn]), None) is None

    return chosen


def _called(
    eqn: core.JaxprEqn, plan: Plan | None, values: Sequence[Any]
) -> Sequence[Any]:
    types = [struct(jax.typeof(v)) for v in values]
    alone = jax.make_jaxpr(lambda *given: bind(eqn, list(given)))(*types)
    return call(alone, Apart.of(plan), values)

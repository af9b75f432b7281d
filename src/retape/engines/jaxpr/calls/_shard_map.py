"""Loops inside `shard_map`: each device's part becomes a call of its own.

A `shard_map` stays one operation of a block, since its inside cannot be told to stop
on all devices at once from outside. But what hides inside may be long. So a body with
a loop that must be reversed is made into one `retape_call`, whose reverse mode is
divide and conquer on each device, with each device's own snapshots:

    before:  y = shard_map[body with a loop] x
    after:   y = shard_map[retape_call[body with a loop]] x
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend import core

from retape._errors import PlanError
from retape.engines.jaxpr.analysis._activity import opens_inside
from retape.engines.jaxpr.analysis._divergent_loops import (
    collectives,
    devices_run_apart,
    is_divergent,
    pvary_equations,
    tracks_varying,
    trip_predicate,
)
from retape.engines.jaxpr.calls._rules import call
from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._evaluate import bind
from retape.engines.jaxpr.jaxprs._jax_internals import source_line
from retape.engines.jaxpr.jaxprs._provenance import Apart
from retape.engines.jaxpr.jaxprs._rewrite import Chooses, contains, map_again, rewrite
from retape.engines.jaxpr.lower._hoist_pvary import hoist_pvary
from retape.engines.jaxpr.lower._lower_jaxpr import GRAIN
from retape.plan._base import Plan


def call_inside_shard_map(
    jaxpr: core.ClosedJaxpr, plan: Plan | None
) -> core.ClosedJaxpr:
    """The same program, in which no `shard_map` hides a loop to be reversed.

    Raises:
        PlanError: If one does and the plan is a number of bytes, which one sweep
            inside another could not keep.
    """

    def mapped(eqn: core.JaxprEqn, values: Sequence[Any]) -> list[Any]:
        if plan is not None and plan.budget is not None:
            raise _no_budget(eqn, plan)
        return map_again(
            eqn,
            lambda *parts: call(call_divergent_loops(_body_of(eqn), plan), plan, parts),
            values,
        )

    return rewrite(jaxpr, _hides_a_loop, mapped)


def _hides_a_loop(eqn: core.JaxprEqn) -> bool:
    if eqn.primitive.name != "shard_map":
        return False
    body = _body_of(eqn)
    return opens_inside(body, [True] * len(body.in_avals), GRAIN)


def _body_of(eqn: core.JaxprEqn) -> core.ClosedJaxpr:
    return core.ClosedJaxpr(eqn.params["jaxpr"], ())


def _no_budget(eqn: core.JaxprEqn, plan: Plan) -> PlanError:
    return PlanError(
        f"`{plan!r}` cannot be kept by a loop inside the `shard_map` at "
        f"{source_line(eqn)}: its sweep would be a part of another one. Take the "
        "gradient inside the `shard_map`, where the bytes are those of one device, or "
        "pass `retape.fixed_space` or `retape.logarithmic`."
    )


def call_divergent_loops(
    jaxpr: core.ClosedJaxpr, plan: Plan | None
) -> core.ClosedJaxpr:
    """The program of a device, in whose loops of its own no collective waits.

    A sweep runs the steps between two of its snapshots again, and how often depends on
    how many steps there are. So if a loop ends at another step on each device,
    everything in its sweep is run another number of times on each. A collective among
    it would wait for ever. Such a loop gets a sweep to itself, in which there is none:

        before:  x = x - pmean(x);  while (differs) { x = step(x) };      psum(x)
        after:   x = x - pmean(x);  x = retape_call[while (differs) ...]  x;  psum(x)

    The call is one operation of whatever stands around it, also where that is swept
    again (`Apart`): the derivative of a derivative meets no collective in a loop
    either. It costs one more run of the loop, and what is not like this is refused
    (`lower/_divergent_loops`).

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
    waits = next(collectives(hoisted.eqns), None)
    if waits is None and next(pvary_equations(hoisted.eqns), None) is None:
        return jaxpr
    return rewrite(hoisted, chosen, lambda eqn, ins: _called(eqn, plan, ins))


def _chooser(jaxpr: core.ClosedJaxpr) -> Chooses:
    """Which loops end at another step on each device, and hold no collective."""
    told = tracks_varying(jaxpr)

    def chosen(eqn: core.JaxprEqn) -> bool:
        # Without types that tell, every loop may; one with a collective in it cannot,
        # or the program itself would wait for ever.
        may = is_divergent(eqn) if told else trip_predicate(eqn) is not None
        return may and next(collectives([eqn]), None) is None

    return chosen


def _called(
    eqn: core.JaxprEqn, plan: Plan | None, values: Sequence[Any]
) -> Sequence[Any]:
    types = [struct(jax.typeof(v)) for v in values]
    alone = jax.make_jaxpr(lambda *given: bind(eqn, list(given)))(*types)
    return call(alone, Apart.of(plan), values)

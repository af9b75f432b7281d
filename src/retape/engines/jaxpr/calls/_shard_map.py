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

from jax.extend import core

from retape._errors import PlanError
from retape.engines.jaxpr.analysis._activity import opens_inside
from retape.engines.jaxpr.calls._own_lengths import call_own_lengths
from retape.engines.jaxpr.calls._rules import call
from retape.engines.jaxpr.jaxprs._jax_internals import source_line
from retape.engines.jaxpr.jaxprs._rewrite import map_again, rewrite
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
            lambda *parts: call(call_own_lengths(_body_of(eqn), plan), plan, parts),
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

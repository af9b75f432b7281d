"""`vmap` of the two primitives: the same of the batched program.

A sweep is a program like any other, but for one thing: a batch of sweeps becomes the
sweep of a batch, which has one schedule, and the form of its platform.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
from jax.extend import core
from jax.interpreters import ad

from retape.engines.jaxpr.analysis._activity import propagate, wide
from retape.engines.jaxpr.calls._placement import filled, parts_of
from retape.engines.jaxpr.calls._rerun import Rerun
from retape.engines.jaxpr.calls._rules import (
    call,
    hoisted_sweep,
    placed_at,
    tangents_of,
)
from retape.engines.jaxpr.intake._vmapped import (
    Axis,
    Dims,
    batched_structs,
    register_batching,
    vmapped,
)
from retape.engines.jaxpr.jaxprs._avals import blank, front
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._evaluate import which
from retape.engines.jaxpr.jaxprs._provenance import (
    ORIGINS,
    Flags,
    Origin,
    call_p,
    linear_p,
)
from retape.engines.jaxpr.jaxprs._subprogram import hoist
from retape.engines.jaxpr.primitives._cotangent_gate import with_gates, without_gates
from retape.plan._base import Plan


@cached(256)
def _batched(
    jaxpr: core.ClosedJaxpr, axes: Dims, axis: Axis, *, every: bool = False
) -> tuple[core.ClosedJaxpr, Dims]:
    """The program over a batch, and the batch axes of its outputs.

    An output that is the same for all lanes has none, unless `every` is to have one.
    """
    origin = ORIGINS.get(jaxpr)
    if origin is not None and _goes_together(origin, axes):
        run = partial(_sweep_together, origin, axes, axis)
        outs: list[int | None] = [0] * len(jaxpr.out_avals)
    elif every:
        run = axis.over(core.jaxpr_as_fun(jaxpr), axes)
        outs = [0] * len(jaxpr.out_avals)
    else:
        run, outs = vmapped(core.jaxpr_as_fun(jaxpr), axis, axes)
    with wide(jaxpr):
        structs = batched_structs(jaxpr.in_avals, axes, axis)
        return jax.make_jaxpr(run)(*structs), tuple(outs)


def _goes_together(origin: Origin, axes: Dims) -> bool:
    """Tell whether a batch of sweeps is to be the sweep of a batch: if runs differ.

    Runs that end at different steps are each at another snapshot. As a batch of sweeps
    every turn would copy all that any of them changes, all snapshots too; and those on
    the host are read and written one at a time. Nor could it get another form where it
    is lowered for a GPU: there 300 cheap steps waited 3,257 times, and not at all 25.
    """
    if isinstance(origin.plan, Rerun):
        return False
    _, point, _ = parts_of(origin, placed_at(origin.ins, axes))
    return any(a is not None for a in point)


def _for_all(plan: Plan | None, size: int) -> Plan | None:
    """The plan for a batch: a budget is for each run."""
    return None if plan is None else plan.for_batch(size)


def _sweep_together(origin: Origin, axes: Dims, axis: Axis, *values: Any) -> list[Any]:
    """A sweep of the batched program in the place of a batched sweep."""
    size = axis.size
    _, point, seeds = parts_of(origin, filled(origin, values))
    _, at, along = parts_of(origin, placed_at(origin.ins, axes))
    for i in which(origin.active):
        # Each run has a cotangent of its own.
        point[i], at[i] = front(point[i], at[i], size), 0
    seeds = [front(v, a, size) for v, a in zip(seeds, along, strict=True)]
    batch, own = hoist(_batched_runs(origin.primal, tuple(at), axis))
    active = (False,) * len(own) + origin.active
    plan = _for_all(origin.plan, size)
    program, more = hoisted_sweep(batch, active, plan)
    # Bound, so that a batch of it knows where it comes from, too.
    found = call_p.bind(*more, *own, *point, *seeds, jaxpr=program, plan=plan)
    return [v for v, wanted in zip(found, origin.outs, strict=True) if wanted]


@cached(256)
def _batched_runs(jaxpr: core.ClosedJaxpr, axes: Dims, axis: Axis) -> core.ClosedJaxpr:
    """`_batched`, to be differentiated: a run's derivative ends where the run did.

    Each run has a cotangent of its own, so every output has the batch axis.
    """
    return without_gates(_batched(with_gates(jaxpr), axes, axis, every=True)[0])


def _call_batch(
    axis: Axis,
    values: Sequence[Any],
    dims: Dims,
    *,
    jaxpr: core.ClosedJaxpr,
    plan: Plan | None,
) -> tuple[list[Any], Dims]:
    whole, outs = _batched(jaxpr, dims, axis)
    return call(whole, plan, values), outs


def _linear_batch(
    axis: Axis,
    values: Sequence[Any],
    dims: Dims,
    *,
    jaxpr: core.ClosedJaxpr,
    primal: core.ClosedJaxpr,
    moving: Flags,
    needed: Flags,
    consts: int,
    plan: Plan | None,
) -> tuple[list[Any], list[int | None]]:
    """Batch the primal program, and take its derivative again."""
    del jaxpr
    n, size = sum(needed), axis.size
    # What plays no part may be anything.
    pairs = zip(placed_at(needed, values[consts:]), primal.in_avals, strict=True)
    point = [blank(aval) if v is None else v for v, aval in pairs]
    at = tuple(placed_at(needed, dims[consts : consts + n]))
    tangents, along = values[consts + n :], dims[consts + n :]
    # A batched input has a batched tangent; one that is not has a tangent only if it
    # is the same for all, so that its primal must be batched along with it.
    spread = _to_batch_axis(point, at, tangents, along, moving, size)
    if spread is not None:
        point, at, tangents = spread
    batch, lanes = _batched(primal, at, axis)
    whole, own = hoist(batch)
    flags = (False,) * len(own) + moving
    outs = iter(
        tangents_of([*own, *point], placed_at(flags, tangents), whole, flags, plan)
    )
    results = [o for o in outs if type(o) is not ad.Zero]
    moved = propagate(primal, moving)
    if len(results) != sum(moved):
        raise AssertionError("batching changed which outputs move")
    return results, [lanes[i] for i in which(moved)]


def _to_batch_axis(
    point: Sequence[Any],
    at: tuple[int | None, ...],
    tangents: Sequence[Any],
    along: tuple[int | None, ...],
    moving: Flags,
    size: int,
) -> Any:
    """Bring each moving input and its tangent to one batch axis."""
    new_point, new_at, new_tangents = list(point), list(at), []
    for i, tangent, axis in zip(which(moving), tangents, along, strict=True):
        if at[i] is None and axis is None:
            new_tangents.append(tangent)
            continue
        new_point[i] = front(point[i], at[i], size)
        new_at[i] = 0
        new_tangents.append(front(tangent, axis, size))
    return new_point, tuple(new_at), new_tangents


register_batching(call_p, _call_batch)
register_batching(linear_p, _linear_batch)

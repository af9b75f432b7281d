"""`vmap` of the two primitives: the same of the batched program.

A sweep is a program like any other, but for one thing: runs that end by themselves are
each at another snapshot, so that a batch of sweeps becomes the sweep of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
from jax.extend import core
from jax.interpreters import ad, batching

from ..._plan import Plan
from ..._plans import Within
from ._activity import propagate, wide
from ._calls import call_p, linear_p
from ._gates import with_gates, without_gates
from ._origins import ORIGINS, Flags, Origin
from ._primitives import call, hoist, hoisted_sweep, tangents_of, which
from ._remembered import remembered
from ._rerun import Rerun
from ._rewrite import contains
from ._types import blank, struct


def _axes(dims: Sequence[Any]) -> tuple[int | None, ...]:
    return tuple(None if d is None else int(d) for d in dims)


@remembered(256)
def _batched(
    jaxpr: core.ClosedJaxpr, axes: tuple[int | None, ...], size: int
) -> core.ClosedJaxpr:
    """The program over a batch; the batch axis is the first of every output."""
    origin = ORIGINS.get(jaxpr)
    if origin is not None and _goes_together(origin, axes):
        run = partial(_sweep_together, origin, axes, size)
    else:
        run = jax.vmap(core.jaxpr_as_fun(jaxpr), in_axes=axes, axis_size=size)
    shapes = [
        v.shape if a is None else (*v.shape[:a], size, *v.shape[a:])
        for v, a in zip(jaxpr.in_avals, axes, strict=True)
    ]
    pairs = zip(shapes, jaxpr.in_avals, strict=True)
    with wide(jaxpr):
        structs = [struct(v.update(shape=s)) for s, v in pairs]
        return jax.make_jaxpr(run)(*structs)


def _goes_together(origin: Origin, axes: tuple[int | None, ...]) -> bool:
    """Whether the sweep of a batch is better than a batch of sweeps.

    Runs that end at different steps are each at another snapshot. As a batch of sweeps
    every turn would copy all that any of them changes, all snapshots too; and those on
    the host are read and written one at a time.
    """
    if isinstance(origin.plan, Rerun):
        return False
    alike = not contains(origin.primal.jaxpr, _ends_by_itself)
    if alike and getattr(origin.plan, "offload", None) is None:
        return False
    point = _parts(origin, _place(origin.ins, axes))[0]
    return any(a is not None for a in point)


def _ends_by_itself(eqn: core.JaxprEqn) -> bool:
    return eqn.primitive.name == "while"


def _for_all(plan: Plan | None, size: int) -> Plan | None:
    """The plan for a batch: a budget is for each run."""
    if not isinstance(plan, Within):
        return plan
    return replace(plan, budget=plan.budget * size)


def _sweep_together(
    origin: Origin, axes: tuple[int | None, ...], size: int, *values: Any
) -> list[Any]:
    """A sweep of the batched program in the place of a batched sweep."""
    given = iter(values)
    # What was found to play no part may be anything.
    pairs = zip(origin.ins, origin.avals, strict=True)
    full = [next(given) if there else blank(aval) for there, aval in pairs]
    point, seeds = _parts(origin, full)
    at, along = _parts(origin, _place(origin.ins, axes))
    for i in which(origin.active):
        # Each run has a cotangent of its own.
        point[i], at[i] = _front(point[i], at[i], size), 0
    seeds = [_front(v, a, size) for v, a in zip(seeds, along, strict=True)]
    batch, own = hoist(_batched_runs(origin.primal, tuple(at), size))
    active = (False,) * len(own) + origin.active
    plan = _for_all(origin.plan, size)
    program, more = hoisted_sweep(batch, active, plan)
    # Bound, so that a batch of it knows where it comes from, too.
    found = call_p.bind(*more, *own, *point, *seeds, jaxpr=program, plan=plan)
    return [v for v, wanted in zip(found, origin.outs, strict=True) if wanted]


@remembered(256)
def _batched_runs(
    jaxpr: core.ClosedJaxpr, axes: tuple[int | None, ...], size: int
) -> core.ClosedJaxpr:
    """`_batched`, to be differentiated: a run's derivative ends where the run did."""
    return without_gates(_batched(with_gates(jaxpr), axes, size))


def _parts(origin: Origin, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Of all inputs of a sweep, those of its program, and its seeds."""
    n, seeds = len(origin.primal.in_avals), sum(propagate(origin.primal, origin.active))
    first = len(values) - seeds
    return list(values[first - n : first]), list(values[first:])


def _size(values: Sequence[Any], dims: Sequence[Any]) -> int:
    return next(v.shape[d] for v, d in zip(values, dims, strict=True) if d is not None)


def _call_batch(
    values: Sequence[Any],
    dims: Sequence[Any],
    *,
    jaxpr: core.ClosedJaxpr,
    plan: Plan | None,
) -> tuple[list[Any], list[int]]:
    outs = call(_batched(jaxpr, _axes(dims), _size(values, dims)), plan, values)
    return outs, [0] * len(outs)


def _linear_batch(
    values: Sequence[Any],
    dims: Sequence[Any],
    *,
    jaxpr: core.ClosedJaxpr,
    primal: core.ClosedJaxpr,
    moving: Flags,
    consts: int,
    plan: Plan | None,
) -> tuple[list[Any], list[int]]:
    """Batch the primal program, and take its derivative again."""
    del jaxpr
    n, size, axes = len(primal.in_avals), _size(values, dims), _axes(dims)
    point, at = values[consts : consts + n], axes[consts : consts + n]
    whole, own = hoist(_batched(primal, at, size))
    tangents, along = values[consts + n :], axes[consts + n :]
    # A batched input has a batched tangent; one that is not has a tangent only if it
    # is the same for all, so that its primal must be batched along with it.
    spread = _spread(point, at, tangents, along, moving, size)
    if spread is not None:
        point, at, tangents = spread
        whole, own = hoist(_batched(primal, at, size))
    flags = (False,) * len(own) + moving
    outs = iter(
        tangents_of([*own, *point], _place(flags, tangents), whole, flags, plan)
    )
    results = [o for o in outs if type(o) is not ad.Zero]
    moved = propagate(primal, moving)
    if len(results) != sum(moved):
        raise AssertionError("batching changed which outputs move")
    return results, [0] * len(results)


def _place(flags: Flags, tangents: Sequence[Any]) -> list[Any]:
    given = iter(tangents)
    return [next(given) if f else None for f in flags]


def _spread(
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
        new_point[i] = _front(point[i], at[i], size)
        new_at[i] = 0
        new_tangents.append(_front(tangent, axis, size))
    return new_point, tuple(new_at), new_tangents


def _front(value: Any, axis: int | None, size: int) -> Any:
    if axis is None:
        return jax.numpy.broadcast_to(value, (size, *jax.numpy.shape(value)))
    return jax.numpy.moveaxis(value, axis, 0)


batching.primitive_batchers[call_p] = _call_batch
batching.primitive_batchers[linear_p] = _linear_batch

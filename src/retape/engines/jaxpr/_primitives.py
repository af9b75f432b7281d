"""Two primitives, closed under every transformation.

`retape_call` evaluates a closed program: `(x...) -> (y...)`. `retape_linear` evaluates
its derivative, `(x..., dx...) -> (dy...)`, linear in `dx`. The family is closed:

    jvp of call        = call and linear
    transpose of linear = call of the sweep (which is a program with loops, too)
    jvp of linear      = call and linear of "forward mode of the program" as a program
    vmap of either     = the same of the batched program

A `custom_vjp` would give up forward mode and nest badly; here a derivative of a
derivative is again a program whose steps can be interrupted, so that split points
fall inside the inner derivative (the paper's Section 7.3 treats it as atomic).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
from jax.extend import core
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as pe

from ..._plan import Plan
from ..._plans import Within
from ._activity import differentiable, propagate, wide
from ._calls import call_p, linear_p
from ._compile import compile_program
from ._exact import traced_sweep
from ._gates import with_gates, without_gates
from ._kernel import ENABLED, marked
from ._rerun import Rerun, rerun_program
from ._rewrite import contains
from ._settle import fit
from ._types import blank, struct

Flags = tuple[bool, ...]


def call(jaxpr: core.ClosedJaxpr, plan: Plan | None, args: Sequence[Any]) -> list[Any]:
    """Evaluate a program whose reverse mode is divide and conquer.

    Constants of the program become arguments: some may be tracers of a transformation
    that is under way.
    """
    hoisted, consts = hoist(jaxpr)
    return call_p.bind(*consts, *args, jaxpr=hoisted, plan=plan)


def hoist(jaxpr: core.ClosedJaxpr) -> tuple[core.ClosedJaxpr, list[Any]]:
    """The program with its constants as leading inputs."""
    if not jaxpr.consts:
        return jaxpr, []
    inner = jaxpr.jaxpr
    names = inner.debug_info.arg_names
    if names is not None:
        names = ("",) * len(inner.constvars) + tuple(names)
    opened = inner.replace(
        constvars=[],
        invars=[*inner.constvars, *inner.invars],
        debug_info=inner.debug_info._replace(arg_names=names),
    )
    return core.ClosedJaxpr(opened, ()), list(jaxpr.consts)


@lru_cache(maxsize=256)
def sweep_program(
    jaxpr: core.ClosedJaxpr, active: Flags, plan: Plan | None
) -> core.ClosedJaxpr:
    """The program `(x..., dy...) -> (y..., dx...)`: values and cotangents at once.

    `dy` has one entry per active output and `dx` one per active input.
    """
    if isinstance(plan, Rerun):
        return rerun_program(jaxpr, active)
    with wide(jaxpr):
        compiled, settings = fit(plan, jaxpr, active, compile_program)
    return traced_sweep(jaxpr, active, compiled, settings)


class Origin(NamedTuple):
    """Where a sweep comes from."""

    primal: core.ClosedJaxpr
    active: Flags
    plan: Plan | None
    avals: tuple[Any, ...]
    """Of the inputs that it had: constants, those of the primal, seeds."""
    ins: Flags
    """Which of them it still has."""
    outs: Flags
    """Which outputs."""


# No origin may refer to its own sweep: nothing would ever be forgotten.
_ORIGINS: WeakKeyDictionary[core.ClosedJaxpr, Origin] = WeakKeyDictionary()


def hoisted_sweep(
    jaxpr: core.ClosedJaxpr, active: Flags, plan: Plan | None
) -> tuple[core.ClosedJaxpr, list[Any]]:
    """`sweep_program` with its constants as leading inputs, and those."""
    program, consts = hoist(sweep_program(jaxpr, active, plan))
    avals = tuple(program.in_avals)
    every = (True,) * len(avals), (True,) * len(program.out_avals)
    _ORIGINS[program] = Origin(jaxpr, active, plan, avals, *every)
    return program, consts


@lru_cache(maxsize=256)
def _forward_program(jaxpr: core.ClosedJaxpr, moving: Flags) -> core.ClosedJaxpr:
    """The program `(x..., dx...) -> (dy...)`, forward mode of `jaxpr`.

    `dx` has one entry per moving input and `dy` one per output that moves with them.
    """
    n = len(jaxpr.in_avals)
    outs = propagate(jaxpr, moving)

    def run(*values: Any) -> list[Any]:
        point = list(values[:n])

        def along(*chosen: Any) -> list[Any]:
            full = list(point)
            for i, v in zip(_which(moving), chosen, strict=True):
                full[i] = v
            results = core.jaxpr_as_fun(jaxpr)(*full)
            return [results[i] for i in _which(outs)]

        chosen = [point[i] for i in _which(moving)]
        return list(jax.jvp(along, chosen, list(values[n:]))[1])

    tangents = [_tangent(jaxpr.in_avals[i]) for i in _which(moving)]
    with wide(jaxpr):
        return jax.make_jaxpr(run)(*map(struct, jaxpr.in_avals), *tangents)


def _which(flags: Sequence[bool]) -> list[int]:
    return [i for i, f in enumerate(flags) if f]


def _tangent(aval: Any) -> jax.ShapeDtypeStruct:
    return struct(aval.to_tangent_aval())


def _evaluate(*values: Any, jaxpr: core.ClosedJaxpr, **_: Any) -> list[Any]:
    return core.jaxpr_as_fun(jaxpr)(*values)


def _lower(context: Any, *values: Any, **params: Any) -> Any:
    """Lower the program in place, with 64-bit types whatever the user's setting.

    A sweep counts in 64 bits. Some of JAX's lowering rules trace Python code of their
    own, which would otherwise truncate it; 32-bit values stay what they are.
    """
    with jax.enable_x64(True):
        return mlir.lower_fun(_evaluate, multiple_results=True)(
            context, *values, **params
        )


def _lower_on_cpu(context: Any, *values: Any, jaxpr: Any, **params: Any) -> Any:
    """The same; what is small runs as one kernel, if there is one device."""
    alone = getattr(context.module_context.axis_context, "num_devices", 0) == 1
    with jax.enable_x64(True):
        chosen = marked(jaxpr) if alone and ENABLED else jaxpr
    return _lower(context, *values, jaxpr=chosen, **params)


def _abstract(*_: Any, jaxpr: core.ClosedJaxpr, **__: Any) -> list[Any]:
    return [v.update(weak_type=False) for v in jaxpr.out_avals]


@lru_cache(maxsize=256)
def _jitted(jaxpr: core.ClosedJaxpr) -> Callable[..., list[Any]]:
    # Bound again inside `jit`, so that it is lowered by `_lower`.
    return jax.jit(lambda *values: call_p.bind(*values, jaxpr=jaxpr, plan=None))


def _impl(*values: Any, jaxpr: core.ClosedJaxpr, **_: Any) -> list[Any]:
    # As in `_lower`: this lowers the program itself, not an equation that calls it.
    with jax.enable_x64(True):
        return _jitted(jaxpr)(*values)


# Forward mode ------------------------------------------------------------------


def _call_jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    jaxpr: core.ClosedJaxpr,
    plan: Plan | None,
) -> tuple[list[Any], list[Any]]:
    outs = call_p.bind(*primals, jaxpr=jaxpr, plan=plan)
    moving = tuple(
        type(t) is not ad.Zero and differentiable(v)
        for t, v in zip(tangents, jaxpr.in_avals, strict=True)
    )
    return outs, _tangents(primals, tangents, jaxpr, moving, plan)


def _tangents(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    jaxpr: core.ClosedJaxpr,
    moving: Flags,
    plan: Plan | None,
) -> list[Any]:
    """The outputs' tangents, symbolic zeros where nothing moves."""
    moved = propagate(jaxpr, moving)
    zeros = [ad.Zero(v.to_tangent_aval()) for v in jaxpr.out_avals]
    if not any(moved):
        return list(zeros)
    forward, consts = hoist(_forward_program(jaxpr, moving))
    chosen = [tangents[i] for i in _which(moving)]
    results = iter(
        linear_p.bind(
            *consts,
            *primals,
            *chosen,
            jaxpr=forward,
            primal=jaxpr,
            moving=moving,
            consts=len(consts),
            plan=plan,
        )
    )
    return [next(results) if m else z for m, z in zip(moved, zeros, strict=True)]


def _linear_jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    jaxpr: core.ClosedJaxpr,
    plan: Plan | None,
    **params: Any,
) -> tuple[list[Any], list[Any]]:
    outs = linear_p.bind(*primals, jaxpr=jaxpr, plan=plan, **params)
    moving = tuple(
        type(t) is not ad.Zero and differentiable(v)
        for t, v in zip(tangents, jaxpr.in_avals, strict=True)
    )
    return outs, _tangents(primals, tangents, jaxpr, moving, plan)


# Reverse mode ------------------------------------------------------------------


def _linear_transpose(
    cotangents: Sequence[Any],
    *values: Any,
    jaxpr: core.ClosedJaxpr,
    primal: core.ClosedJaxpr,
    moving: Flags,
    consts: int,
    plan: Plan | None,
) -> list[Any]:
    """Cotangents of the tangents that went in: one sweep."""
    del jaxpr
    n = len(primal.in_avals)
    point = values[consts : consts + n]
    wanted = [ad.is_undefined_primal(v) for v in values[consts + n :]]
    active = list(moving)
    for i, w in zip(_which(moving), wanted, strict=True):
        active[i] = w
    found = pull_back(primal, tuple(active), plan, point, cotangents, moving)
    head: list[Any] = [None] * (consts + n)
    return head + [next(found) if w else None for w in wanted]


def pull_back(
    primal: core.ClosedJaxpr,
    active: Flags,
    plan: Plan | None,
    point: Sequence[Any],
    cotangents: Sequence[Any],
    moving: Flags,
) -> Any:
    """Cotangents of the active inputs, from those of the outputs that moved."""
    moved = _which(propagate(primal, moving))
    alive = propagate(primal, active)
    seeds = [
        _instantiate(c) for i, c in zip(moved, cotangents, strict=True) if alive[i]
    ]
    program, hoisted = hoisted_sweep(primal, active, plan)
    outs = call_p.bind(*hoisted, *point, *seeds, jaxpr=program, plan=plan)
    return iter(outs[len(primal.out_avals) :])


def _instantiate(cotangent: Any) -> Any:
    return ad.instantiate_zeros(cotangent)


def _call_transpose(
    cotangents: Sequence[Any], *values: Any, jaxpr: core.ClosedJaxpr, plan: Plan | None
) -> list[Any]:
    """A call that is itself linear: its derivative at any point is its transpose."""
    active = tuple(ad.is_undefined_primal(v) for v in values)
    point = [
        ad.instantiate_zeros(ad.Zero(v.aval)) if a else v
        for v, a in zip(values, active, strict=True)
    ]
    moved = propagate(jaxpr, active)
    given = [c for c, m in zip(cotangents, moved, strict=True) if m]
    found = pull_back(jaxpr, active, plan, point, given, active)
    return [next(found) if a else None for a in active]


# vmap --------------------------------------------------------------------------


def _axes(dims: Sequence[Any]) -> tuple[int | None, ...]:
    return tuple(None if d is None else int(d) for d in dims)


@lru_cache(maxsize=256)
def _batched(
    jaxpr: core.ClosedJaxpr, axes: tuple[int | None, ...], size: int
) -> core.ClosedJaxpr:
    """The program over a batch; the batch axis is the first of every output."""
    origin = _ORIGINS.get(jaxpr)
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
    for i in _which(origin.active):
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


@lru_cache(maxsize=256)
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
    outs = iter(_tangents([*own, *point], _place(flags, tangents), whole, flags, plan))
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
    for i, tangent, axis in zip(_which(moving), tangents, along, strict=True):
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


# Dead code ---------------------------------------------------------------------


def _call_dce(used: list[bool], eqn: core.JaxprEqn) -> tuple[list[bool], Any]:
    """Drop outputs that nobody reads, and inputs that only they needed."""
    if not any(used):
        return [False] * len(eqn.invars), None
    jaxpr = eqn.params["jaxpr"]
    slim, needed = pe.dce_jaxpr(jaxpr.jaxpr, used, instantiate=False)
    closed = core.ClosedJaxpr(slim, jaxpr.consts)
    if (origin := _ORIGINS.get(jaxpr)) is not None:
        _ORIGINS[closed] = origin._replace(
            ins=_narrowed(origin.ins, needed), outs=_narrowed(origin.outs, used)
        )
    params = eqn.params | {"jaxpr": closed}
    ins = [v for v, n in zip(eqn.invars, needed, strict=True) if n]
    outs = [v for v, u in zip(eqn.outvars, used, strict=True) if u]
    return list(needed), eqn.replace(invars=ins, outvars=outs, params=params)


def _narrowed(flags: Flags, kept: Sequence[bool]) -> Flags:
    given = iter(kept)
    return tuple(f and next(given) for f in flags)


for _p in (call_p, linear_p):
    _p.def_impl(_impl)
    _p.def_abstract_eval(_abstract)
    mlir.register_lowering(_p, _lower)
    mlir.register_lowering(_p, _lower_on_cpu, platform="cpu")
ad.primitive_jvps[call_p] = _call_jvp
ad.primitive_jvps[linear_p] = _linear_jvp
ad.primitive_transposes[call_p] = _call_transpose
ad.primitive_transposes[linear_p] = _linear_transpose
batching.primitive_batchers[call_p] = _call_batch
batching.primitive_batchers[linear_p] = _linear_batch
pe.dce_rules[call_p] = _call_dce

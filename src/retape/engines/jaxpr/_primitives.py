"""Two primitives, closed under every transformation.

`retape_call` evaluates a closed program: `(x...) -> (y...)`. `retape_linear` evaluates
its derivative, `(x..., dx...) -> (dy...)`, linear in `dx`. The family is closed:

    jvp of call        = call and linear
    transpose of linear = call of the sweep (which is a program with loops, too)
    jvp of linear      = call and linear of "forward mode of the program" as a program
    vmap of either     = the same of the batched program (`_batches`)

A `custom_vjp` would give up forward mode and nest badly; here a derivative of a
derivative is again a program whose steps can be interrupted, so that split points
fall inside the inner derivative (the paper's Section 7.3 treats it as atomic).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
from jax.extend import core
from jax.interpreters import ad, mlir
from jax.interpreters import partial_eval as pe

from ..._plan import Plan
from ._activity import differentiable, propagate, wide
from ._callbacks import gathered
from ._calls import call_p, linear_p
from ._compile import compile_program
from ._exact import traced_sweep
from ._kernel import ENABLED, marked
from ._origins import ORIGINS, Flags, Origin, narrowed
from ._rerun import Rerun, rerun_program
from ._settle import fit
from ._types import struct


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


def hoisted_sweep(
    jaxpr: core.ClosedJaxpr, active: Flags, plan: Plan | None
) -> tuple[core.ClosedJaxpr, list[Any]]:
    """`sweep_program` with its constants as leading inputs, and those."""
    program, consts = hoist(sweep_program(jaxpr, active, plan))
    avals = tuple(program.in_avals)
    every = (True,) * len(avals), (True,) * len(program.out_avals)
    ORIGINS[program] = Origin(jaxpr, active, plan, avals, *every)
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
            for i, v in zip(which(moving), chosen, strict=True):
                full[i] = v
            results = core.jaxpr_as_fun(jaxpr)(*full)
            return [results[i] for i in which(outs)]

        chosen = [point[i] for i in which(moving)]
        return list(jax.jvp(along, chosen, list(values[n:]))[1])

    tangents = [_tangent(jaxpr.in_avals[i]) for i in which(moving)]
    with wide(jaxpr):
        return jax.make_jaxpr(run)(*map(struct, jaxpr.in_avals), *tangents)


def which(flags: Sequence[bool]) -> list[int]:
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
    chosen = gathered(jaxpr)
    with jax.enable_x64(True):
        chosen = marked(chosen) if alone and ENABLED else chosen
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
    return outs, tangents_of(primals, tangents, jaxpr, moving, plan)


def tangents_of(
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
    chosen = [tangents[i] for i in which(moving)]
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
    return outs, tangents_of(primals, tangents, jaxpr, moving, plan)


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
    for i, w in zip(which(moving), wanted, strict=True):
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
    moved = which(propagate(primal, moving))
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


# Dead code ---------------------------------------------------------------------


def _call_dce(used: list[bool], eqn: core.JaxprEqn) -> tuple[list[bool], Any]:
    """Drop outputs that nobody reads, and inputs that only they needed."""
    if not any(used):
        return [False] * len(eqn.invars), None
    jaxpr = eqn.params["jaxpr"]
    slim, needed = pe.dce_jaxpr(jaxpr.jaxpr, used, instantiate=False)
    closed = core.ClosedJaxpr(slim, jaxpr.consts)
    narrowed(jaxpr, closed, needed, used)
    params = eqn.params | {"jaxpr": closed}
    ins = [v for v, n in zip(eqn.invars, needed, strict=True) if n]
    outs = [v for v, u in zip(eqn.outvars, used, strict=True) if u]
    return list(needed), eqn.replace(invars=ins, outvars=outs, params=params)


for _p in (call_p, linear_p):
    _p.def_impl(_impl)
    _p.def_abstract_eval(_abstract)
    mlir.register_lowering(_p, _lower)
    mlir.register_lowering(_p, _lower_on_cpu, platform="cpu")
ad.primitive_jvps[call_p] = _call_jvp
ad.primitive_jvps[linear_p] = _linear_jvp
ad.primitive_transposes[call_p] = _call_transpose
ad.primitive_transposes[linear_p] = _linear_transpose
pe.dce_rules[call_p] = _call_dce

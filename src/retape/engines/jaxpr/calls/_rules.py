"""Two primitives, closed under every transformation.

`retape_call` evaluates a closed program: `(x...) -> (y...)`. `retape_linear` evaluates
its derivative, `(x..., dx...) -> (dy...)`, linear in `dx`. The family is closed:

    jvp of call        = call and linear
    transpose of linear = call of the sweep (which is a program with loops, too)
    jvp of linear      = call and linear of "forward mode of the program" as a program
    vmap of either     = the same of the batched program (`calls/_batching`)

A `custom_vjp` would give up forward mode and nest badly; here a derivative of a
derivative is again a program whose steps can be interrupted, so that split points
fall inside the inner derivative (the paper's Section 7.3 treats it as atomic).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend import core
from jax.interpreters import ad, mlir

from retape.engines.jaxpr._pipeline import compile_program
from retape.engines.jaxpr.analysis._activity import propagate, wide
from retape.engines.jaxpr.calls._forward_form import forward_form
from retape.engines.jaxpr.calls._hidden_tapes import warn_of_hidden_tapes
from retape.engines.jaxpr.calls._mlir_lowering import evaluate_call, lower, lower_on_cpu
from retape.engines.jaxpr.calls._placement import made_again, may_be_spread, placed
from retape.engines.jaxpr.calls._platform_form import sweep_form
from retape.engines.jaxpr.calls._rerun import Rerun, flows_back, rerun_program
from retape.engines.jaxpr.intake._hijax import expanded
from retape.engines.jaxpr.jaxprs._avals import as_weak, is_inexact, struct
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._evaluate import dce_inputs, jvp_by, which
from retape.engines.jaxpr.jaxprs._jax_internals import names_an_axis, register_dce
from retape.engines.jaxpr.jaxprs._provenance import (
    ORIGINS,
    Flags,
    Origin,
    call_p,
    inner_plan,
    linear_p,
    narrowed,
)
from retape.engines.jaxpr.jaxprs._subprogram import hoist
from retape.engines.jaxpr.jaxprs._target import is_gpu, platform
from retape.engines.jaxpr.sizing._choose_settings import compile_for_plan
from retape.engines.jaxpr.sweep._sweep_program import traced_sweep
from retape.engines.jaxpr.xla._standalone import Shardings
from retape.plan._base import Plan


def call(jaxpr: core.ClosedJaxpr, plan: Plan | None, args: Sequence[Any]) -> list[Any]:
    """Evaluate a program whose reverse mode is divide and conquer.

    Constants of the program become arguments: some may be tracers of a transformation
    that is under way.
    """
    hoisted, consts = hoist(jaxpr)
    return call_p.bind(*consts, *args, jaxpr=hoisted, plan=plan)


@cached(256)
def sweep_program(
    jaxpr: core.ClosedJaxpr,
    active: Flags,
    plan: Plan | None,
    places: Shardings | None = None,
    *,
    provisional: bool = False,
) -> core.ClosedJaxpr:
    """The program `(x..., dy...) -> (y..., dx...)`: values and cotangents at once.

    `dy` has one entry per active output and `dx` one per active input.

    Args:
        jaxpr: The program that is swept.
        active: For each input, whether a derivative by it is wanted.
        plan: The user's plan.
        places: Where the inputs are; a budget is for each device.
        provisional: Whether the choice of sizes is made again in lowering.
    """
    if isinstance(plan, Rerun):
        return rerun_program(jaxpr, active)
    with wide(jaxpr):
        compiled, settings = compile_for_plan(
            inner_plan(plan),
            jaxpr,
            active,
            compile_program,
            places,
            provisional=provisional,
        )
    return traced_sweep(jaxpr, active, compiled, settings)


def hoisted_sweep(
    jaxpr: core.ClosedJaxpr, active: Flags, plan: Plan | None
) -> tuple[core.ClosedJaxpr, list[Any]]:
    """`sweep_program` with its constants as leading inputs, and those."""
    if not isinstance(plan, Rerun):
        # Before the look-up: an equal function is warned, too.
        warn_of_hidden_tapes(jaxpr, active)
    budgeted = plan is not None and plan.budget is not None
    # For a GPU the form is only known in lowering: it may be exported for others, too.
    later = budgeted and (is_gpu(platform()) or may_be_spread(jaxpr))
    program, consts = hoist(sweep_program(jaxpr, active, plan, provisional=later))
    avals = tuple(program.in_avals)
    every = (True,) * len(avals), (True,) * len(program.out_avals)
    ORIGINS[program] = Origin(jaxpr, active, plan, avals, *every, provisional=later)
    return program, consts


def swept_again(jaxpr: core.ClosedJaxpr, origin: Origin) -> core.ClosedJaxpr:
    """A sweep made anew, by the plan of an origin."""
    program = sweep_program(origin.primal, origin.active, origin.plan)
    return made_again(origin, jaxpr, program)


def _lower_placed(context: Any, *values: Any, jaxpr: Any, **params: Any) -> Any:
    """Lower a program; a budget is kept where the arguments are.

    One rule for all platforms: JAX fails on a primitive with several that is lowered in
    place for several platforms at once.
    """

    def made(origin: Origin) -> core.ClosedJaxpr:
        if origin.provisional:
            return placed(origin, jaxpr, context, values, sweep_program)
        return swept_again(jaxpr, origin)

    platforms = tuple(context.module_context.platforms)
    if jaxpr in ORIGINS:
        chosen = sweep_form(jaxpr, made, platforms)
    else:
        chosen = forward_form(jaxpr, params["plan"], platforms)
    rule = lower_on_cpu if platforms == ("cpu",) else lower
    return rule(context, *values, jaxpr=chosen, **params)


@cached(256)
def _forward_program(
    jaxpr: core.ClosedJaxpr, moving: Flags, *, slim: bool
) -> tuple[core.ClosedJaxpr, Flags]:
    """The program `(x..., dx...) -> (dy...)`, forward mode of `jaxpr`.

    `dx` has one entry per moving input and `dy` one per output that moves with them.
    If it is `slim` it has those `x` only that it reads, and which these are.
    """
    n = len(jaxpr.in_avals)
    outs = propagate(jaxpr, moving)

    def run(*values: Any) -> list[Any]:
        def moved(*values: Any) -> list[Any]:
            results = core.jaxpr_as_fun(jaxpr)(*values)
            return [results[i] for i in which(outs)]

        return list(jvp_by(moved, values[:n], which(moving), values[n:])[1])

    tangents = [_tangent(jaxpr.in_avals[i]) for i in which(moving)]
    with wide(jaxpr):
        program = jax.make_jaxpr(run)(*map(struct, jaxpr.in_avals), *tangents)
    if not slim:
        return program, (True,) * n
    read = [False] * n + [True] * len(tangents)
    program, needed = dce_inputs(program, keep=read)
    return program, tuple(needed[:n])


def _tangent(aval: Any) -> jax.ShapeDtypeStruct:
    return struct(aval.to_tangent_aval())


def _call_avals(*_: Any, jaxpr: core.ClosedJaxpr, **__: Any) -> tuple[list[Any], Any]:
    """Types of the results, and the axes that collectives inside speak of."""
    named = {e for e in jaxpr.effects if names_an_axis(e)}
    return [v.update(weak_type=False) for v in jaxpr.out_avals], named


# Forward mode ------------------------------------------------------------------


def _jvp_of(primitive: core.Primitive) -> Any:
    """The rule of either primitive: itself, and the other one beside it."""

    def rule(
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        jaxpr: core.ClosedJaxpr,
        plan: Plan | None,
        **params: Any,
    ) -> tuple[list[Any], list[Any]]:
        outs = primitive.bind(*primals, jaxpr=jaxpr, plan=plan, **params)
        moving = tuple(
            type(t) is not ad.Zero and is_inexact(v)
            for t, v in zip(tangents, jaxpr.in_avals, strict=True)
        )
        return outs, tangents_of(primals, tangents, jaxpr, moving, plan)

    return rule


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
    # A sweep goes through the program again, from all that it began with; the reverse
    # of a marked function is a program that reads what it reads.
    program, needed = _forward_program(jaxpr, moving, slim=isinstance(plan, Rerun))
    forward, consts = hoist(program)
    chosen = [tangents[i] for i in which(moving)]
    results = iter(
        linear_p.bind(
            *consts,
            *(primals[i] for i in which(needed)),
            *chosen,
            jaxpr=forward,
            primal=jaxpr,
            moving=moving,
            needed=needed,
            consts=len(consts),
            plan=plan,
        )
    )
    return [next(results) if m else z for m, z in zip(moved, zeros, strict=True)]


# Reverse mode ------------------------------------------------------------------


def _linear_transpose(
    cotangents: Sequence[Any],
    *values: Any,
    jaxpr: core.ClosedJaxpr,
    primal: core.ClosedJaxpr,
    moving: Flags,
    needed: Flags,
    consts: int,
    plan: Plan | None,
) -> list[Any]:
    """Cotangents of the tangents that went in: one sweep."""
    del jaxpr
    n = sum(needed)
    point = placed_at(needed, values[consts : consts + n])
    wanted = map(ad.is_undefined_primal, values[consts + n :])
    active = list(moving)
    for i, w in zip(which(moving), wanted, strict=True):
        active[i] = w
    found = pull_back(primal, tuple(active), plan, point, cotangents, moving)
    head: list[Any] = [None] * (consts + n)
    return head + _given_back(found, values[consts + n :])


def pull_back(
    primal: core.ClosedJaxpr,
    active: Flags,
    plan: Plan | None,
    point: Sequence[Any],
    cotangents: Sequence[Any],
    moving: Flags,
) -> list[Any]:
    """Cotangents of the active inputs, from those of the outputs that moved."""
    moved = which(propagate(primal, moving))
    pairs = zip(moved, cotangents, strict=True)
    given = {i: c for i, c in pairs if type(c) is not ad.Zero}
    whole, wanted = primal, which(active)
    # A zero is not handed on as numbers: there may be what refuses a cotangent.
    part, read = _of_outputs(primal, tuple(given))
    if len(given) < len(moved):
        primal, given = part, dict(enumerate(given.values()))
    active = tuple(a and r for a, r in zip(active, read, strict=True))
    found = iter(_swept(primal, active, plan, point, given))
    zeros = [ad.Zero(whole.in_avals[i].to_tangent_aval()) for i in wanted]
    pairs = zip(wanted, zeros, strict=True)
    return [next(found) if active[i] else zero for i, zero in pairs]


@cached(256)
def _of_outputs(
    primal: core.ClosedJaxpr, at: tuple[int, ...]
) -> tuple[core.ClosedJaxpr, Flags]:
    """The program with some of its outputs, and which of its inputs they read."""
    wanted = [i in at for i in range(len(primal.out_avals))]
    _, read = dce_inputs(primal, wanted)
    part, _ = dce_inputs(primal, wanted, keep=True)
    return part, tuple(read)


def _swept(
    primal: core.ClosedJaxpr,
    active: Flags,
    plan: Plan | None,
    point: Sequence[Any],
    given: dict[int, Any],
) -> list[Any]:
    """Cotangents of the active inputs, from those of outputs by their numbers."""
    if not any(active):
        return []
    seeds = [given[i] for i in which(propagate(primal, active))]
    program, hoisted = hoisted_sweep(primal, active, plan)
    values = [*hoisted, *point, *seeds]
    if isinstance(plan, Rerun):
        program, read = _cotangents_alone(program, len(primal.out_avals))
        values = [values[i] for i in which(read)]
        assert not any(v is None for v in values), "more is read than in forward mode"
        found = call_p.bind(*values, jaxpr=program, plan=plan)
        pairs = zip(found, flows_back(primal, active), strict=True)
        return [c if flows else ad.Zero(jax.typeof(c)) for c, flows in pairs]
    outs = call_p.bind(*values, jaxpr=program, plan=plan)
    return outs[len(primal.out_avals) :]


@cached(256)
def _cotangents_alone(
    program: core.ClosedJaxpr, outs: int
) -> tuple[core.ClosedJaxpr, Flags]:
    """A sweep without the program's outputs, and what it reads then."""
    wanted = [False] * outs + [True] * (len(program.out_avals) - outs)
    slim, read = dce_inputs(program, wanted)
    return slim, tuple(read)


def placed_at(flags: Flags, values: Sequence[Any]) -> list[Any]:
    """One of the values for each flag that is set, in order, and `None` elsewhere."""
    given = iter(values)
    return [next(given) if f else None for f in flags]


def _given_back(found: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The cotangents, each of the type of its tangent; `None` for a known value."""
    types = [v.aval for v in values if ad.is_undefined_primal(v)]
    pairs = zip(found, types, strict=True)
    given = (f if type(f) is ad.Zero else as_weak([f], [t])[0] for f, t in pairs)
    return [next(given) if ad.is_undefined_primal(v) else None for v in values]


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
    return _given_back(found, values)


# Dead code ---------------------------------------------------------------------


def _call_dce(used: Sequence[bool], eqn: core.JaxprEqn) -> tuple[list[bool], Any]:
    """Drop outputs that nobody reads, and inputs that only they needed."""
    if not any(used):
        return [False] * len(eqn.invars), None
    jaxpr = eqn.params["jaxpr"]
    closed, needed = dce_inputs(jaxpr, used)
    narrowed(jaxpr, closed, needed, used)
    params = eqn.params | {"jaxpr": closed}
    ins = [v for v, n in zip(eqn.invars, needed, strict=True) if n]
    outs = [v for v, u in zip(eqn.outvars, used, strict=True) if u]
    return needed, eqn.replace(invars=ins, outvars=outs, params=params)


# Lowering -----------------------------------------------------------------------


def _to_low(*values: Any, jaxpr: core.ClosedJaxpr, **_: Any) -> list[Any]:
    """Evaluate it without JAX's primitives of the new kind: derivatives are taken."""
    return call_p.bind(*values, jaxpr=expanded(jaxpr), plan=None)


for _p in (call_p, linear_p):
    _p.def_impl(evaluate_call)
    _p.to_lojax = _to_low
    ad.primitive_jvps[_p] = _jvp_of(_p)
    _p.def_effectful_abstract_eval(_call_avals)
    # In place, where the arguments of the whole program can be seen.
    mlir.register_lowering(_p, _lower_placed, cacheable=False)
ad.primitive_transposes[call_p] = _call_transpose
ad.primitive_transposes[linear_p] = _linear_transpose
register_dce(call_p, _call_dce)

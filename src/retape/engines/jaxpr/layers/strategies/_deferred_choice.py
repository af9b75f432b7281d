"""A function that is cut when a derivative is taken, and it is known by which inputs.

What a gradient takes depends on that, and a strategy that measures has to know it. So
the whole function is one operation, whose derivative is that of the function as cut. A
function whose derivative is never taken is not cut at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
from jax.core import eval_jaxpr
from jax.extend import core
from jax.interpreters import ad, mlir

from retape.engines.jaxpr.intake._vmapped import (
    Axis,
    Dims,
    batched_structs,
    register_batching,
    vmapped,
)
from retape.engines.jaxpr.jaxprs._avals import as_weak, is_inexact, struct
from retape.engines.jaxpr.jaxprs._evaluate import jvp_by, restricted, which
from retape.engines.jaxpr.jaxprs._jax_internals import classic_rules, names_an_axis
from retape.engines.jaxpr.jaxprs._subprogram import hoist
from retape.engines.jaxpr.layers.remat._flat_program import Graph
from retape.engines.jaxpr.layers.strategies._compiled_footprint import Inputs

late_p = core.Primitive("retape_deferred")
late_p.multiple_results = True


class Chooser(Protocol):
    """Says how a graph is run, for a gradient by some of its inputs."""

    def choose(
        self, graph: Graph, inputs: Inputs
    ) -> Callable[[Sequence[Any]], list[Any]]:
        """How the graph is evaluated, to be differentiated."""
        ...


def run_late(graph: Graph, by: Chooser, values: Sequence[Any]) -> list[Any]:
    """Evaluate a graph that `by` cuts when its derivative is taken."""
    program = core.ClosedJaxpr(graph.jaxpr, ())
    return late_p.bind(*values, jaxpr=program, held=graph.held, by=by)


def _deferred_impl(*values: Any, jaxpr: core.ClosedJaxpr, **_: Any) -> list[Any]:
    return eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *values)


def _deferred_avals(
    *_: Any, jaxpr: core.ClosedJaxpr, **__: Any
) -> tuple[list[Any], set[Any]]:
    return list(jaxpr.out_avals), {e for e in jaxpr.effects if names_an_axis(e)}


def _deferred_jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    jaxpr: core.ClosedJaxpr,
    held: int,
    by: Chooser,
) -> tuple[list[Any], list[Any]]:
    moving = tuple(
        type(t) is not ad.Zero and is_inexact(v)
        for t, v in zip(tangents, jaxpr.in_avals, strict=True)
    )
    zeros = [ad.Zero(v.to_tangent_aval()) for v in jaxpr.out_avals]
    if not any(moving):
        return late_p.bind(*primals, jaxpr=jaxpr, held=held, by=by), list(zeros)
    inputs = Inputs.among(primals, moving, held)
    chosen = by.choose(Graph(jaxpr.jaxpr, held), inputs)
    at = which(moving)

    def run(*values: Any) -> list[Any]:
        return chosen(values)

    # Forward mode of a mark of the new kind (`jax_remat3`) is no mark any more.
    with classic_rules():
        outs, moved = jvp_by(run, primals, at, [tangents[i] for i in at])
    pairs = zip(jaxpr.out_avals, moved, zeros, strict=True)
    outs = as_weak(outs, jaxpr.out_avals)
    return outs, [t if is_inexact(v) else zero for v, t, zero in pairs]


def _deferred_transpose(
    cotangents: Sequence[Any], *values: Any, jaxpr: core.ClosedJaxpr, **_: Any
) -> list[Any]:
    """A function that is itself linear keeps nothing: there is nothing to cut."""
    wanted = [ad.is_undefined_primal(v) for v in values]

    at = which(wanted)
    along = restricted(core.jaxpr_as_fun(jaxpr), values, at)
    structs = [struct(v.aval) for v, w in zip(values, wanted, strict=True) if w]
    pull = jax.linear_transpose(along, *structs)
    found = iter(pull([ad.instantiate_zeros(c) for c in cotangents]))
    return [next(found) if w else None for w in wanted]


def _deferred_batch(
    axis: Axis,
    values: Sequence[Any],
    dims: Dims,
    *,
    jaxpr: core.ClosedJaxpr,
    held: int,
    by: Chooser,
) -> tuple[list[Any], list[int | None]]:
    run, outs = vmapped(core.jaxpr_as_fun(jaxpr), axis, dims)
    structs = batched_structs(jaxpr.in_avals, dims, axis)
    whole, consts = hoist(jax.make_jaxpr(run)(*structs))
    held += len(consts)
    return late_p.bind(*consts, *values, jaxpr=whole, held=held, by=by), outs


late_p.def_impl(_deferred_impl)
late_p.def_effectful_abstract_eval(_deferred_avals)
ad.primitive_jvps[late_p] = _deferred_jvp
ad.primitive_transposes[late_p] = _deferred_transpose
register_batching(late_p, _deferred_batch)
mlir.register_lowering(late_p, mlir.lower_fun(_deferred_impl, multiple_results=True))

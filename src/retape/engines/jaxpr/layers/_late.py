"""A function that is cut when a derivative is taken, and it is known by which inputs.

What a gradient takes depends on that, and a strategy that measures has to know it. So
the whole function is one operation, whose derivative is that of the function as cut. A
function whose derivative is never taken is not cut at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import jax
from jax.core import eval_jaxpr
from jax.extend import core
from jax.interpreters import ad, batching, mlir

from .._activity import differentiable
from .._primitives import hoist
from .._types import struct
from ._apply import Stretch, run_stretches
from ._graph import Graph

late_p = core.Primitive("retape_late")
late_p.multiple_results = True


class Chooser(Protocol):
    """Cuts a graph, for a gradient by some of its inputs."""

    def choose(
        self, graph: Graph, moving: tuple[bool, ...]
    ) -> tuple[Graph, Sequence[Stretch]]:
        """The graph, perhaps in another order, and how it is cut."""
        ...


def run_late(graph: Graph, by: Chooser, values: Sequence[Any]) -> list[Any]:
    """Evaluate a graph that `by` cuts when its derivative is taken."""
    return late_p.bind(*values, jaxpr=core.ClosedJaxpr(graph.jaxpr, ()), by=by)


def _evaluate(*values: Any, jaxpr: core.ClosedJaxpr, by: Chooser) -> list[Any]:
    del by
    return eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *values)


def _abstract(*_: Any, jaxpr: core.ClosedJaxpr, by: Chooser) -> list[Any]:
    del by
    return list(jaxpr.out_avals)


def _jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    jaxpr: core.ClosedJaxpr,
    by: Chooser,
) -> tuple[list[Any], list[Any]]:
    moving = tuple(
        type(t) is not ad.Zero and differentiable(v)
        for t, v in zip(tangents, jaxpr.in_avals, strict=True)
    )
    zeros = [ad.Zero(v.to_tangent_aval()) for v in jaxpr.out_avals]
    if not any(moving):
        return late_p.bind(*primals, jaxpr=jaxpr, by=by), list(zeros)
    graph, stretches = by.choose(Graph(jaxpr.jaxpr), moving)
    which = [i for i, m in enumerate(moving) if m]

    def along(*some: Any) -> list[Any]:
        full = list(primals)
        for i, v in zip(which, some, strict=True):
            full[i] = v
        return run_stretches(graph, stretches, full)

    outs, moved = jax.jvp(
        along, [primals[i] for i in which], [tangents[i] for i in which]
    )
    pairs = zip(jaxpr.out_avals, moved, zeros, strict=True)
    return outs, [t if differentiable(v) else zero for v, t, zero in pairs]


def _transpose(
    cotangents: Sequence[Any], *values: Any, jaxpr: core.ClosedJaxpr, by: Chooser
) -> list[Any]:
    """A function that is itself linear keeps nothing: there is nothing to cut."""
    del by
    wanted = [ad.is_undefined_primal(v) for v in values]

    def along(*some: Any) -> list[Any]:
        rest = iter(some)
        full = [next(rest) if w else v for w, v in zip(wanted, values, strict=True)]
        return eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *full)

    structs = [struct(v.aval) for v, w in zip(values, wanted, strict=True) if w]
    pull = jax.linear_transpose(along, *structs)
    found = iter(pull([ad.instantiate_zeros(c) for c in cotangents]))
    return [next(found) if w else None for w in wanted]


def _batch(
    values: Sequence[Any], dims: Sequence[Any], *, jaxpr: core.ClosedJaxpr, by: Chooser
) -> tuple[list[Any], list[int]]:
    run = jax.vmap(core.jaxpr_as_fun(jaxpr), in_axes=tuple(dims))
    batched = jax.make_jaxpr(run)(*(struct(jax.typeof(v)) for v in values))
    whole, consts = hoist(batched)
    outs = late_p.bind(*consts, *values, jaxpr=whole, by=by)
    return outs, [0] * len(outs)


late_p.def_impl(_evaluate)
late_p.def_abstract_eval(_abstract)
ad.primitive_jvps[late_p] = _jvp
ad.primitive_transposes[late_p] = _transpose
batching.primitive_batchers[late_p] = _batch
mlir.register_lowering(late_p, mlir.lower_fun(_evaluate, multiple_results=True))

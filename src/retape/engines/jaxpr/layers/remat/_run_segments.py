"""A function cut into stretches: some are stored, some are marked and run again.

A marked stretch may keep some of what it computes, its *saved* values. They are made
once, and handed to the stretch beside its inputs: where it comes to such a value, it
takes the one that was kept (`with_primal`). What only led to that value is not computed
again, and derivatives of every order go by the way of the value that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.extend import core

from retape.engines.jaxpr.calls._rerun import Rerun
from retape.engines.jaxpr.calls._rules import call
from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._evaluate import Environment, begun, bind, evaluate
from retape.engines.jaxpr.jaxprs._structural_equality import deduplicate
from retape.engines.jaxpr.jaxprs._subprogram import excerpt, variables
from retape.engines.jaxpr.layers.remat._flat_program import Graph
from retape.engines.jaxpr.layers.remat._slice_primitive import InSequence, SlicesBehind
from retape.engines.jaxpr.primitives._with_primal import with_primal


@dataclass(frozen=True, slots=True)
class Stretch:
    """Operations `start` to `stop`.

    Attributes:
        start: The first operation.
        stop: The operation to stop before.
        marked: Whether it is run again in reverse; otherwise all that is needed is
            stored.
        saved: The values that a marked stretch keeps.
    """

    start: int
    stop: int
    marked: bool = True
    saved: frozenset[Any] = frozenset()


def run_stretches(
    graph: Graph, stretches: Sequence[Stretch], values: Sequence[Any]
) -> list[Any]:
    """Evaluate the graph, stretch by stretch."""
    env = begun(graph.jaxpr, values, consts=())
    for stretch in stretches:
        part = graph.stretch(stretch.start, stretch.stop)
        if stretch.marked:
            outs = _run_marked(part, _recomputed_inside(graph, part, stretch), env)
        else:
            outs = evaluate(part.jaxpr, env.read_all(part.jaxpr.invars), InSequence())
        env.write(part.jaxpr.outvars, outs)
    return env.read_all(graph.jaxpr.outvars)


class _Inside(NamedTuple):
    """What a marked stretch is handed, or makes, instead of computing it."""

    kept: core.ClosedJaxpr
    """Makes the saved values, once, before the stretch."""
    views: core.ClosedJaxpr
    """Makes those of its inputs that are views of the graph's inputs: in the stretch,
    from the whole, so that no copy of them waits for the reverse sweep."""
    behind: Any
    """The input that is made last: nothing in the stretch need begin before it."""


def _recomputed_inside(
    graph: Graph, part: core.ClosedJaxpr, stretch: Stretch
) -> _Inside:
    eqns, like = part.jaxpr.eqns, part.jaxpr
    saved = [v for eqn in eqns for v in eqn.outvars if v in stretch.saved]
    views = [v for v in like.invars if v in graph.views]
    computed = [v for v in like.invars if v in graph.made and v not in graph.views]
    return _Inside(
        _leading_to(like, eqns, saved),
        _leading_to(like, list(graph.views.values()), views),
        max(computed, key=lambda v: graph.made[v], default=None),
    )


def _run_marked(part: core.ClosedJaxpr, inside: _Inside, env: Environment) -> list[Any]:
    """Evaluate a stretch whose reverse mode runs it again, but for what is saved."""
    values = env.read_all(part.jaxpr.invars)
    kept, views = inside.kept.jaxpr, inside.views.jaxpr
    if not (kept.outvars or views.outvars):
        return call(deduplicate(part), Rerun(), values)
    held = evaluate(kept, env.read_all(kept.invars))
    fixed = map(lax.stop_gradient, [*held, *env.read_all(views.invars)])
    values = [*values, *fixed]
    structs = [struct(jax.typeof(v)) for v in values]
    whole = jax.make_jaxpr(_with_held(part, inside))(*structs)
    return call(deduplicate(whole), Rerun(), values)


def _leading_to(
    like: core.Jaxpr, eqns: Sequence[Any], outs: Sequence[Any]
) -> core.ClosedJaxpr:
    """The operations without which `outs` cannot be computed."""
    wanted, needed = set(outs), []
    for eqn in reversed(eqns):
        if not wanted.isdisjoint(eqn.outvars):
            wanted.update(variables(eqn.invars))
            needed.append(eqn)
    made = {v for eqn in needed for v in eqn.outvars}
    ins = dict.fromkeys(v for eqn in needed for v in variables(eqn.invars))
    return excerpt(like, [v for v in ins if v not in made], outs, needed[::-1])


def _with_held(part: core.ClosedJaxpr, inside: _Inside) -> Callable[..., list[Any]]:
    """The stretch as a function of its inputs, of what was kept, and of wholes."""
    n, kept = len(part.jaxpr.invars), inside.kept.jaxpr.outvars
    views = inside.views.jaxpr

    def run(*values: Any) -> list[Any]:
        given = dict(zip(part.jaxpr.invars, values[:n], strict=True))
        held = dict(zip(kept, values[n : n + len(kept)], strict=True))
        take = SlicesBehind(given.get(inside.behind))
        parts = evaluate(views, values[n + len(kept) :], take)
        held.update(zip(views.outvars, parts, strict=True))

        def standing(v: Any, value: Any) -> Any:
            return with_primal(value, held[v]) if v in held else value

        def apply(eqn: Any, ins: list[Any]) -> list[Any]:
            made = zip(eqn.outvars, bind(eqn, ins), strict=True)
            return [standing(v, out) for v, out in made]

        return evaluate(part.jaxpr, [standing(v, x) for v, x in given.items()], apply)

    return run

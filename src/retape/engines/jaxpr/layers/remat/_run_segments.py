"""A function cut into stretches: some are stored, some are marked and run again.

A marked stretch may keep some of what it computes, its *saved* values. They are made
once, when the stretch is first run, and handed to it beside its inputs: where it comes
to such a value, it takes the one that was kept (`with_primal`). What only led to that
value is not computed again, and derivatives of every order go by the way of the value
that it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import lax
from jax.extend import core

from retape.engines.jaxpr.calls._rerun import Rerun
from retape.engines.jaxpr.calls._rules import call
from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._evaluate import Environment, begun, evaluate
from retape.engines.jaxpr.jaxprs._structural_equality import deduplicate
from retape.engines.jaxpr.jaxprs._subprogram import excerpt, variables
from retape.engines.jaxpr.layers.remat._flat_program import Graph
from retape.engines.jaxpr.layers.remat._saves import Held, Saves, through_held
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
        saves: What a marked stretch keeps.
    """

    start: int
    stop: int
    marked: bool = True
    saves: Saves = Saves()


def run_stretches(
    graph: Graph, stretches: Sequence[Stretch], values: Sequence[Any]
) -> list[Any]:
    """Evaluate the graph, stretch by stretch."""
    env = begun(graph.jaxpr, values, consts=())
    for stretch in stretches:
        part = graph.stretch(stretch.start, stretch.stop)
        if stretch.marked:
            outs = _run_marked(graph, part, stretch.saves, env)
        else:
            outs = evaluate(part.jaxpr, env.read_all(part.jaxpr.invars), InSequence())
        env.write(part.jaxpr.outvars, outs)
    return env.read_all(graph.jaxpr.outvars)


def _run_marked(
    graph: Graph, part: core.ClosedJaxpr, saves: Saves, env: Environment
) -> list[Any]:
    """Evaluate a stretch whose reverse mode runs it again, but for what is saved."""
    values = env.read_all(part.jaxpr.invars)
    views = _views_of(graph, part.jaxpr.invars)
    if not (saves.any or views.outvars):
        return call(deduplicate(part), Rerun(), values)
    outs = held = None
    if saves.any:
        once = list(map(lax.stop_gradient, values))
        outs, held = through_held(part, once, saves, None)
    wholes = list(map(lax.stop_gradient, env.read_all(views.invars)))
    given = values, wholes, held

    def again(values: Sequence[Any], wholes: Sequence[Any], held: Held) -> list[Any]:
        ins = _with_views(graph, part.jaxpr.invars, values, views, wholes)
        return through_held(part, ins, saves, held)[0]

    whole = jax.make_jaxpr(again)(*jax.tree.map(lambda v: struct(jax.typeof(v)), given))
    marked = call(deduplicate(whole), Rerun(), jax.tree.leaves(given))
    # Where the value is there already, derivatives alone are taken of the marked call.
    return marked if outs is None else list(map(with_primal, marked, outs))


def _with_views(
    graph: Graph,
    ins: Sequence[Any],
    values: Sequence[Any],
    views: core.Jaxpr,
    wholes: Sequence[Any],
) -> list[Any]:
    """Values of variables, those that are views made from what they are views of."""
    known = dict(zip(ins, values, strict=True))
    made = [v for v in ins if v in graph.made and v not in graph.views]
    # Nothing in the stretch need begin before the input that is made last.
    last = max(made, key=lambda v: graph.made[v], default=None)
    parts = evaluate(views, wholes, SlicesBehind(known.get(last)))
    for v, part in zip(views.outvars, parts, strict=True):
        known[v] = with_primal(known[v], part)
    return [known[v] for v in ins]


def _views_of(graph: Graph, ins: Sequence[Any]) -> core.Jaxpr:
    """From the graph's inputs to those of some values that are views of them.

    They are made in the stretch, from the whole, so that no copy of them waits for the
    reverse sweep.
    """
    outs = [v for v in ins if v in graph.views]
    wanted, needed = set(outs), []
    for eqn in reversed(graph.views.values()):
        if not wanted.isdisjoint(eqn.outvars):
            wanted.update(variables(eqn.invars))
            needed.append(eqn)
    made = {v for eqn in needed for v in eqn.outvars}
    read = dict.fromkeys(v for eqn in needed for v in variables(eqn.invars))
    wholes = [v for v in read if v not in made]
    return excerpt(graph.jaxpr, wholes, outs, needed[::-1]).jaxpr

"""A function cut into stretches: some are stored, some are marked and run again.

A marked stretch may keep some of what it computes, its *saved* values. They are made
once, and handed to the stretch beside its inputs: where it comes to such a value, it
takes the one that was kept (`instead`). What only led to that value is not computed
again, and derivatives of every order go by the way of the value that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import lax
from jax.extend import core

from .._code import bind
from .._instead import instead
from .._primitives import call
from .._rerun import Rerun
from ._graph import Graph, evaluate, program, read, variables


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
    env = dict(zip(graph.jaxpr.invars, values, strict=True))
    for stretch in stretches:
        part = graph.stretch(stretch.start, stretch.stop)
        ins = [env[v] for v in part.jaxpr.invars]
        if stretch.marked:
            outs = run_marked(part, stretch.saved, ins)
        else:
            outs = evaluate(part.jaxpr, ins, bind)
        env.update(zip(part.jaxpr.outvars, outs, strict=True))
    return [read(env, atom) for atom in graph.jaxpr.outvars]


def run_marked(
    part: core.ClosedJaxpr, saved: frozenset[Any], values: Sequence[Any]
) -> list[Any]:
    """Evaluate a stretch whose reverse mode runs it again, but for what is saved."""
    made = {v for eqn in part.jaxpr.eqns for v in eqn.outvars}
    kept = [v for v in _ordered(part.jaxpr) if v in saved and v in made]
    if not kept:
        return call(part, Rerun(), values)
    found = evaluate(_leading_to(part, kept).jaxpr, values, bind)
    held = [lax.stop_gradient(v) for v in found]
    structs = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in (*values, *held)]
    whole = jax.make_jaxpr(_with_held(part, kept))(*structs)
    return call(whole, Rerun(), [*values, *held])


def _ordered(jaxpr: Any) -> list[Any]:
    return [v for eqn in jaxpr.eqns for v in eqn.outvars]


def _leading_to(part: core.ClosedJaxpr, kept: Sequence[Any]) -> core.ClosedJaxpr:
    """The operations without which `kept` cannot be computed."""
    wanted, eqns = set(kept), []
    for eqn in reversed(part.jaxpr.eqns):
        if any(v in wanted for v in eqn.outvars):
            wanted.update(variables(eqn.invars))
            eqns.append(eqn)
    return program(part.jaxpr, part.jaxpr.invars, kept, eqns[::-1])


def _with_held(part: core.ClosedJaxpr, kept: Sequence[Any]) -> Callable[..., list[Any]]:
    """The stretch as a function of its inputs and of the values that were kept."""
    n = len(part.jaxpr.invars)

    def run(*values: Any) -> list[Any]:
        held = dict(zip(kept, values[n:], strict=True))

        def apply(eqn: Any, ins: list[Any]) -> list[Any]:
            outs = zip(eqn.outvars, bind(eqn, ins), strict=True)
            return [instead(out, held[v]) if v in held else out for v, out in outs]

        return evaluate(part.jaxpr, values[:n], apply)

    return run

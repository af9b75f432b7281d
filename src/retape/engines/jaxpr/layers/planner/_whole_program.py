"""Strategies for a whole program with loops in it: what the planner chooses from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax.extend import core

from retape.engines.jaxpr.calls._rules import call
from retape.engines.jaxpr.layers.policies import selective
from retape.engines.jaxpr.layers.remat._choose_segments import (
    Cutter,
    beyond,
    least_peak,
    segments_behind,
    views_first,
)
from retape.engines.jaxpr.layers.remat._flat_program import Graph
from retape.engines.jaxpr.layers.remat._run_segments import Stretch, run_stretches
from retape.engines.jaxpr.layers.remat._strategies import Cutting, Strategy
from retape.plan._base import Plan


@dataclass(frozen=True, slots=True)
class AsItIs(Strategy):
    """Everything that is needed is stored."""

    def run(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        whole = [Stretch(0, len(graph), marked=False)]
        return run_stretches(graph, whole, values)


@dataclass(frozen=True, slots=True)
class Selective(Cutting):
    """Products with weights are saved, all else is run again, stretch by stretch."""

    def cut(self, graph: Graph) -> tuple[Graph, Sequence[Stretch]]:
        graph, first = views_first(graph)
        found = least_peak(Cutter(beyond(graph, first)))
        stretches = segments_behind(first, found.stretches)
        return graph, [self._keeping(graph, s) for s in stretches]

    def _keeping(self, graph: Graph, stretch: Stretch) -> Stretch:
        eqns = graph.jaxpr.eqns[stretch.start : stretch.stop]
        keep = selective()
        kept = [
            v
            for e in eqns
            if keep(e.primitive, *(a.aval for a in e.invars), **e.params)
            for v in e.outvars
        ]
        return replace(stretch, saved=frozenset(kept))


@dataclass(frozen=True, slots=True)
class StepMachine(Strategy):
    """The whole program under a plan, as `retape.jax.checkpointed` reverses it."""

    plan: Plan

    def run(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        return call(core.ClosedJaxpr(graph.jaxpr, ()), self.plan, values)

"""Strategies for a whole program with loops in it: what the planner chooses from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax.extend import core

from retape.engines.jaxpr.calls._rules import call
from retape.engines.jaxpr.layers.remat._choose_segments import Cutter, least_peak
from retape.engines.jaxpr.layers.remat._flat_program import Graph
from retape.engines.jaxpr.layers.remat._policy import Strategy, saves_products
from retape.engines.jaxpr.layers.remat._run_segments import Stretch, run_stretches
from retape.engines.jaxpr.layers.remat._saves import saves_of
from retape.engines.jaxpr.layers.strategies._cutting import Cutting
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

    def cut(self, graph: Graph) -> Sequence[Stretch]:
        pieces = least_peak(Cutter(graph)).stretches
        parts = [graph.stretch(s.start, s.stop).jaxpr for s in pieces]
        saves = [saves_of(part, saves_products) for part in parts]
        return [replace(s, saves=kept) for s, kept in zip(pieces, saves, strict=True)]


@dataclass(frozen=True, slots=True)
class StepMachine(Strategy):
    """The whole program under a plan, as `retape.jax.checkpointed` reverses it."""

    plan: Plan

    def run(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        return call(core.ClosedJaxpr(graph.jaxpr, ()), self.plan, values)

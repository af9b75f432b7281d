"""Strategies that look at a whole function: where it is cut, what is stored."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.extend import core

from retape.engines.jaxpr.calls._rules import call
from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._evaluate import dce, evaluate
from retape.engines.jaxpr.layers.loops._cut_loop import Loops, has_loops
from retape.engines.jaxpr.layers.loops._options import LoopOptions
from retape.engines.jaxpr.layers.remat._choose_segments import (
    Cutter,
    beyond,
    every,
    least_peak,
    segments_behind,
    views_first,
)
from retape.engines.jaxpr.layers.remat._flat_program import Graph, graph_of, is_loop
from retape.engines.jaxpr.layers.remat._policy import Strategy, saves_products
from retape.engines.jaxpr.layers.remat._run_segments import Stretch, run_stretches
from retape.engines.jaxpr.layers.remat._saves import saves_of
from retape.plan._base import Plan


def with_loops(graph: Graph, way: Loops | None, values: Sequence[Any]) -> list[Any]:
    """Evaluate a function with its loops run in a way."""
    if way is None:
        return evaluate(graph.jaxpr, values, consts=())
    return way.run(graph, values)


@cached(64)
def in_way(graph: Graph, way: Loops | None) -> tuple[Graph, Sequence[Any]]:
    """A function with its loops in a way, and constants that are its first inputs."""
    structs = [struct(v.aval) for v in graph.jaxpr.invars]
    run = lambda *values: with_loops(graph, way, values)  # noqa: E731
    return graph_of(dce(jax.make_jaxpr(run)(*structs)))


class Cutting(Strategy):
    """A policy that cuts a function between its operations, and loops inside.

    A loop is no part of a piece that is run again: it keeps what its own way keeps.
    """

    @abstractmethod
    def cut(self, graph: Graph) -> Sequence[Stretch]:
        """How a graph is cut that has no views of its inputs."""

    def of_loops(self) -> Loops:
        """How loops are run: their bodies are cut as functions are."""
        return Loops(LoopOptions(levels=1, policy=self))

    def run(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        if has_loops(graph):
            graph, consts = in_way(graph, self.of_loops())
            values = [*consts, *values]
        graph, first = views_first(graph)
        stretches = segments_behind(first, self.cut(beyond(graph, first)))
        return run_stretches(graph, list(_around_loops(graph, stretches)), values)


def _around_loops(graph: Graph, stretches: Sequence[Stretch]) -> Iterator[Stretch]:
    """The stretches without the loops in them, which are stored as they are."""
    loops = [i for i, eqn in enumerate(graph.jaxpr.eqns) if is_loop(eqn)]
    for stretch in stretches:
        start = stretch.start
        for i in loops:
            if not stretch.marked or not stretch.start <= i < stretch.stop:
                continue
            if start < i:
                yield replace(stretch, start=start, stop=i)
            yield Stretch(i, i + 1, marked=False)
            start = i + 1
        if start < stretch.stop:
            yield replace(stretch, start=start)


@dataclass(frozen=True, slots=True)
class EveryN(Cutting):
    """See `policies.every_n`."""

    n: int

    def cut(self, graph: Graph) -> Sequence[Stretch]:
        return every(graph, self.n)


@dataclass(frozen=True, slots=True)
class Sqrt(Cutting):
    """See `policies.sqrt`."""

    def of_loops(self) -> Loops:
        # Of a chain of equal steps the square root is two levels.
        return Loops(LoopOptions(levels=2), deep=True)

    def cut(self, graph: Graph) -> Sequence[Stretch]:
        return least_peak(Cutter(graph)).stretches


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

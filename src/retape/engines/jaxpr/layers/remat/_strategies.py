"""Strategies that look at a whole function: where it is cut, what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from retape._warn import warn
from retape.engines.jaxpr.jaxprs._subprogram import variables
from retape.engines.jaxpr.layers.remat._choose_segments import (
    Cutter,
    beyond,
    every,
    least_peak,
    segments_behind,
    views_first,
)
from retape.engines.jaxpr.layers.remat._flat_program import Graph
from retape.engines.jaxpr.layers.remat._run_segments import Stretch, run_stretches

_LOOP_IS_ONE = (
    "`{}` cuts a function between its operations, and most of the work is in a `scan`, "
    "which is one operation: nothing inside it is cut, and all of it is run again. "
    "Write the loop as `retape.jax.scan`, or pass a policy that is asked about the "
    "operations inside, such as `policies.selective()`."
)


class Strategy:
    """A policy that needs to see all operations at once."""

    def cut(self, graph: Graph) -> tuple[Graph, Sequence[Stretch]]:
        """The graph, perhaps in another order, and how it is cut."""
        raise NotImplementedError(type(self).__name__)

    def run(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        """Evaluate the graph in this way."""
        if graph.is_mostly_loops:
            warn(_LOOP_IS_ONE.format(self))
        return run_stretches(*self.cut(graph), values)

    def __call__(self, *_: Any, **__: Any) -> bool:
        """What `jax.checkpoint` itself would make of it: nothing is saved."""
        return False


@dataclass(frozen=True, slots=True)
class EveryN(Strategy):
    """See `policies.every_n`."""

    n: int

    def cut(self, graph: Graph) -> tuple[Graph, Sequence[Stretch]]:
        graph, first = views_first(graph)
        return graph, segments_behind(first, every(beyond(graph, first), self.n))


@dataclass(frozen=True, slots=True)
class Sqrt(Strategy):
    """See `policies.sqrt`."""

    def cut(self, graph: Graph) -> tuple[Graph, Sequence[Stretch]]:
        graph, first = views_first(graph)
        found = least_peak(Cutter(beyond(graph, first)))
        return graph, segments_behind(first, found.stretches)


@dataclass(frozen=True, slots=True)
class ByDepth(Strategy):
    """See `policies.by_depth`."""

    depth: int

    def cut(self, graph: Graph) -> tuple[Graph, Sequence[Stretch]]:
        deep: dict[Any, int] = {}
        for eqn in graph.jaxpr.eqns:
            level = 1 + max((deep.get(v, 0) for v in variables(eqn.invars)), default=0)
            deep.update((v, level) for v in eqn.outvars)
        order = sorted(graph.jaxpr.eqns, key=lambda eqn: deep[eqn.outvars[0]])
        sorted_graph = Graph(graph.jaxpr.replace(eqns=order))
        shallow = sum(deep[eqn.outvars[0]] <= self.depth for eqn in order)
        found = least_peak(Cutter(beyond(sorted_graph, shallow)))
        return sorted_graph, segments_behind(shallow, found.stretches)

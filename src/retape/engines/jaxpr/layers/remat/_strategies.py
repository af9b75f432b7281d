"""Strategies that look at a whole function: where it is cut, what is stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax

from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._evaluate import dce, evaluate
from retape.engines.jaxpr.layers.remat._choose_segments import (
    Cutter,
    beyond,
    every,
    least_peak,
    segments_behind,
    views_first,
)
from retape.engines.jaxpr.layers.remat._flat_program import Graph, graph_of, is_loop
from retape.engines.jaxpr.layers.remat._run_segments import Stretch, run_stretches


class Strategy(ABC):
    """A policy that needs to see all operations at once."""

    @abstractmethod
    def run(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        """Evaluate the graph in this way."""

    def __call__(self, *_: Any, **__: Any) -> bool:
        """What `jax.checkpoint` itself would make of it: nothing is saved."""
        return False


LoopWay = Strategy | None
"""How all loops of a function are run; `None` is as they are."""


class LoopForms(Protocol):
    """How loops can be run; `layers.loops`, which stands above, knows it."""

    def ways(self, graph: Graph) -> Sequence[LoopWay]:
        """Ways for all loops of a function, by rising extra work."""
        ...

    def inside(self, levels: int, policy: Strategy | None) -> Strategy:
        """All loops in so many levels, their bodies by a policy."""
        ...


_offered: list[LoopForms] = []


def offer(forms: LoopForms) -> None:
    """Name the ways in which loops can be run."""
    _offered[:] = [forms]


def loop_forms() -> LoopForms:
    """What was offered."""
    (forms,) = _offered
    return forms


def has_loops(graph: Graph) -> bool:
    """Whether there is a scan of more than one step, and a way to run it."""
    return bool(_offered) and any(map(is_loop, graph.jaxpr.eqns))


def with_loops(graph: Graph, way: LoopWay, values: Sequence[Any]) -> list[Any]:
    """Evaluate a function with its loops run in a way."""
    if way is None:
        return evaluate(graph.jaxpr, values, consts=())
    return way.run(graph, values)


@cached(64)
def in_way(graph: Graph, way: LoopWay) -> tuple[Graph, Sequence[Any]]:
    """A function with its loops in a way, and constants that are its first inputs."""
    structs = [struct(v.aval) for v in graph.jaxpr.invars]
    run = lambda *values: with_loops(graph, way, values)  # noqa: E731
    return graph_of(dce(jax.make_jaxpr(run)(*structs)))


class Cutting(Strategy):
    """A policy that cuts a function between its operations, and loops inside.

    A loop is no part of a piece that is run again: it keeps what its own way keeps.
    """

    @abstractmethod
    def cut(self, graph: Graph) -> tuple[Graph, Sequence[Stretch]]:
        """The graph, perhaps in another order, and how it is cut."""

    def of_loops(self) -> Strategy:
        """How loops are run: their bodies are cut as functions are."""
        return loop_forms().inside(1, self)

    def run(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        if has_loops(graph):
            graph, consts = in_way(graph, self.of_loops())
            values = [*consts, *values]
        graph, stretches = self.cut(graph)
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

    def cut(self, graph: Graph) -> tuple[Graph, Sequence[Stretch]]:
        graph, first = views_first(graph)
        return graph, segments_behind(first, every(beyond(graph, first), self.n))


@dataclass(frozen=True, slots=True)
class Sqrt(Cutting):
    """See `policies.sqrt`."""

    def of_loops(self) -> Strategy:
        # Of a chain of equal steps the square root is two levels.
        return loop_forms().inside(2, None)

    def cut(self, graph: Graph) -> tuple[Graph, Sequence[Stretch]]:
        graph, first = views_first(graph)
        found = least_peak(Cutter(beyond(graph, first)))
        return graph, segments_behind(first, found.stretches)

"""How the loops inside a function are reversed, as a budget asks.

Their ways stand in a row, by rising extra work. What they take falls, by and large, so
the middle one is compiled first, then the middle of one half, and so on: three ways at
most. Which is taken depends on the budget alone, and a greater budget is never answered
by more work: on the way down both make the same turns, until the smaller one turns to
more work.

    as it is | products with weights | every step | 2 levels, products | 2 | 3 | 5
                                                    ^ first

On an accelerator carries in the host's memory stand in the place of the fourth. Where
loops stand in loops, the last two are 1 and 2 levels of both.
"""

from __future__ import annotations

from jax.extend import core

from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._structural_equality import deduplicate
from retape.engines.jaxpr.layers.loops._whole_loops import Loops, loop_ways
from retape.engines.jaxpr.layers.remat._flat_program import Graph
from retape.engines.jaxpr.layers.strategies._compiled_footprint import (
    Inputs,
    MeasuredWays,
)
from retape.engines.jaxpr.layers.strategies._cutting import with_loops


class LoopSearch(MeasuredWays):
    """The ways of a function's loops, and what the compiler says of them."""

    def __init__(self, graph: Graph, inputs: Inputs) -> None:
        self.ways = loop_ways(graph)
        run = lambda n, values: with_loops(graph, self.ways[n], values)  # noqa: E731
        super().__init__(graph, inputs, run)

    def best(self, memory: int) -> tuple[Loops | None] | None:
        """The way to go, in a tuple; `None` if none that was asked about fits."""
        fits = [n for n in self.tried(memory) if self.fits(n, memory)]
        return (self.ways[min(fits)],) if fits else None

    def tried(self, memory: int) -> list[int]:
        """The numbers of the ways that are compiled for a budget, in order."""
        low, high, found = 0, len(self.ways), []
        while low < high:
            found.append(middle := (low + high) // 2)
            if self.fits(middle, memory):
                high = middle
            else:
                low = middle + 1
        return found

    def least_way(self) -> tuple[int, Loops | None]:
        """The fewest bytes of the ways that are tried where nothing fits, and that."""
        number = self.least(self.tried(0))
        return self.known[number], self.ways[number]


def loop_search(graph: Graph, inputs: Inputs) -> LoopSearch:
    """The search of a function, which is one for all its traces."""
    return _search_of(deduplicate(core.ClosedJaxpr(graph.jaxpr, ())), inputs)


@cached(32)
def _search_of(program: core.ClosedJaxpr, inputs: Inputs) -> LoopSearch:
    return LoopSearch(Graph(program.jaxpr), inputs)

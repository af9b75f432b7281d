"""Strategies that look at a whole function: where it is cut, what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend import core

from ...._bytes import format_bytes
from ...._errors import BudgetError
from ._apply import Stretch, run_stretches
from ._cutting import (
    Cut,
    Cutter,
    behind,
    beyond,
    cheapest,
    every,
    least_peak,
    views_first,
)
from ._graph import Graph, variables
from ._measured import reverse_footprint

_TRIES = 5
"""Most compilations in search of a budget."""

_MARGIN = 1.12
"""A function compiled alone is laid out otherwise than inside a program."""


class Strategy:
    """A policy that needs to see all operations at once."""

    def cut(self, graph: Graph) -> tuple[Graph, Sequence[Stretch]]:
        """The graph, perhaps in another order, and how it is cut."""
        raise NotImplementedError(type(self).__name__)

    def run(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        """Evaluate the graph in this way."""
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
        return graph, behind(first, every(beyond(graph, first), self.n))


@dataclass(frozen=True, slots=True)
class Sqrt(Strategy):
    """See `policies.sqrt`."""

    def cut(self, graph: Graph) -> tuple[Graph, Sequence[Stretch]]:
        graph, first = views_first(graph)
        found = least_peak(Cutter(beyond(graph, first)))
        return graph, behind(first, found.stretches)


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
        return sorted_graph, behind(shallow, found.stretches)


@dataclass(frozen=True, slots=True)
class Within(Strategy):
    """See `policies.within`."""

    budget: int

    def cut(self, graph: Graph) -> tuple[Graph, Sequence[Stretch]]:
        graph, first = views_first(graph)
        rest = beyond(graph, first)
        cutter = Cutter(rest, ("mark", "products", "store"))
        plain = (Stretch(0, len(graph), marked=False),)
        if self.measured(graph, plain) <= self.budget:
            return graph, plain
        best: Cut | None = None
        target = self.budget
        for _ in range(_TRIES):
            found = cheapest(cutter, target)
            if found is None:
                break
            taken = self.measured(graph, behind(first, found.stretches))
            if taken <= self.budget and (best is None or found.work < best.work):
                best = found
            # The model leaves out working memory, and what fusion saves.
            if 0.9 * self.budget <= taken <= self.budget:
                break
            target = max(1, round(0.97 * target * self.budget / max(1, taken)))
        best = best or self.least(graph, first)
        return graph, behind(first, best.stretches)

    def least(self, graph: Graph, first: int) -> Cut:
        """The cut of lowest peak, if that suffices."""
        found = least_peak(Cutter(beyond(graph, first)))
        taken = self.measured(graph, behind(first, found.stretches))
        if taken > self.budget:
            raise BudgetError(
                f"`within({self.budget})` ({format_bytes(self.budget)}) cannot be "
                f"kept: run again as often as helps, the function takes {taken} bytes. "
                f"The least possible is {taken} bytes ({format_bytes(taken)})."
            )
        return found

    def measured(self, graph: Graph, stretches: Sequence[Stretch]) -> int:
        avals = core.ClosedJaxpr(graph.jaxpr, ()).in_avals
        structs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
        run = lambda values: run_stretches(graph, stretches, values)  # noqa: E731
        # In the user's program the same function takes a little more or less.
        return round(_MARGIN * reverse_footprint(run, structs).temp)

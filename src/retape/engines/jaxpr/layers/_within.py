"""`within`: the cut of least work whose gradient, when compiled, keeps to a budget.

What a cut takes is predicted by `_cutting`, and the compiler has the last word: it
fuses, and it needs working memory. So the dynamic programme is solved for a row of
targets. Its answers, by falling work, are the same for every budget, and a bisection
over them compiles the gradient of each that it looks at. The rule that says which it
looks at does not change with the budget either; hence a larger budget never leads to
more work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from ...._bytes import format_bytes
from ...._errors import BudgetError
from .._remembered import remembered
from .._types import struct
from ._apply import Stretch, run_stretches
from ._cutting import Cut, Cutter, behind, beyond, cheapest, least_peak, views_first
from ._graph import Graph
from ._late import run_late
from ._measured import footprint, gradients
from ._strategies import Strategy

_TARGETS = 24
"""Budgets that the dynamic programme is solved for, from the least peak to all."""

_LOWEST = 3
"""Cuts of most work that are all compiled if the search ends among them: the one that
is predicted to take the fewest bytes need not."""


@dataclass(frozen=True, slots=True)
class Within(Strategy):
    """See `policies.within`."""

    budget: int

    def run(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        return run_late(graph, self, values)

    def choose(
        self, graph: Graph, moving: tuple[bool, ...]
    ) -> tuple[Graph, Sequence[Stretch]]:
        """The graph with views in front, and its cut for these moving inputs."""
        graph, first = views_first(graph)
        search = _search(_Printed(graph, first, moving))
        best = search.best(self.budget)
        if best is None:
            least = search.least()
            raise BudgetError(
                f"`within({self.budget})` ({format_bytes(self.budget)}) cannot be "
                "kept, run again what one may. The least budget that would do is "
                f"{least} bytes ({format_bytes(least)}). Pass at least that, or make "
                "the arguments smaller.",
                least,
            )
        # The same program from another trace has variables of its own.
        own = dict(zip(_made(search.graph), _made(graph), strict=True))
        return graph, [replace(s, saved=frozenset(map(own.get, s.saved))) for s in best]


@dataclass(frozen=True, slots=True)
class Least(Strategy):
    """What `Within` does under the smallest budget that it can keep."""

    def run(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        return run_late(graph, self, values)

    def choose(
        self, graph: Graph, moving: tuple[bool, ...]
    ) -> tuple[Graph, Sequence[Stretch]]:
        """As `Within.choose`."""
        ordered, first = views_first(graph)
        search = _search(_Printed(ordered, first, moving))
        search.best(0)
        return Within(search.least()).choose(graph, moving)


class _Search:
    """Cuts of one function, by falling work, and what the compiler says of them."""

    def __init__(self, graph: Graph, first: int, moving: tuple[bool, ...]) -> None:
        self.graph, self.moving = graph, moving
        plain = [Stretch(0, len(graph), marked=False)]
        cuts = _cuts(beyond(graph, first))
        self.cuts = [*(behind(first, cut.stretches) for cut in cuts), plain]
        self.programs: dict[int, Any] = {}
        self.known: dict[tuple[int, int], int] = {}

    def best(self, budget: int) -> Sequence[Stretch] | None:
        """The last cut that the bisection finds within the budget."""
        top = len(self.cuts) - 1
        if self.fits(top, budget):
            return self.cuts[top]
        low, high = self.lowest - 1, top
        while high - low > 1:
            middle = (low + high) // 2
            # One program is enough to tell the way; all are asked at its end.
            if self.bytes(middle, -1) <= budget:
                low = middle
            else:
                high = middle
        ways = range(low, -1, -1)
        return next((self.cuts[i] for i in ways if self.fits(i, budget)), None)

    @property
    def lowest(self) -> int:
        """How many cuts are all compiled if the search ends among them."""
        return min(_LOWEST, len(self.cuts))

    def least(self) -> int:
        """The smallest budget that `best` meets, after it did not meet one."""
        tried = sorted((self.bytes(number, -1), number) for number in self.programs)
        least = max(self.sizes(tried[0][1]))
        for size, number in tried[1:]:
            if size < least:
                least = min(least, max(self.sizes(number)))
        return least

    def fits(self, number: int, budget: int) -> bool:
        """Whether every program for the gradient keeps to the budget."""
        return all(size <= budget for size in self.sizes(number))

    def sizes(self, number: int) -> Iterator[int]:
        """Temporaries of the programs for the gradient under a cut, last ones first."""
        count = len(self.gradients(number)[0])
        return (self.bytes(number, -1 - i) for i in range(count))

    def bytes(self, number: int, program: int) -> int:
        """Temporaries of one of the programs, counted from the end of their list."""
        if (number, program) not in self.known:
            programs, args = self.gradients(number)
            self.known[number, program] = footprint(programs[program], *args).temp
        return self.known[number, program]

    def gradients(self, number: int) -> Any:
        """The programs for the gradient under a cut, and their arguments' types."""
        if number not in self.programs:
            found = _gradients(self.graph, self.cuts[number], self.moving)
            self.programs[number] = found
        return self.programs[number]


def _cuts(graph: Graph) -> list[Cut]:
    """The answers of the dynamic programme for all targets, by falling work."""
    least = least_peak(Cutter(graph))
    cutter = Cutter(graph, ("mark", "products", "store"))
    found = {least.stretches: least}
    low, high = max(1, least.peak_bytes), max(1, cutter.everything)
    for i in range(_TARGETS):
        cut = cheapest(cutter, round(low * (high / low) ** (i / _TARGETS)))
        if cut is not None:
            found.setdefault(cut.stretches, cut)
    return sorted(found.values(), key=lambda cut: (-cut.work, cut.peak_bytes))


def _gradients(
    graph: Graph, stretches: Sequence[Stretch], moving: tuple[bool, ...]
) -> Any:
    structs = [struct(v.aval) for v in graph.jaxpr.invars]
    run = lambda values: run_stretches(graph, stretches, values)  # noqa: E731
    return gradients(run, structs, moving)


def _made(graph: Graph) -> list[Any]:
    return [v for eqn in graph.jaxpr.eqns for v in eqn.outvars]


class _Printed:
    """A graph that equals another if their gradients are printed alike.

    Each trace of a function makes a new graph; what was compiled for one holds for all.
    The function alone does not tell, since what is printed of a custom rule is a name.
    """

    def __init__(self, graph: Graph, first: int, moving: tuple[bool, ...]) -> None:
        self.graph, self.first, self.moving = graph, first, moving
        plain = [Stretch(0, len(graph), marked=False)]
        programs, args = _gradients(graph, plain, moving)
        self.text = f"{graph.jaxpr}{jax.make_jaxpr(programs[0])(*args)}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Printed) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


@remembered(32)
def _search(printed: _Printed) -> _Search:
    return _Search(printed.graph, printed.first, printed.moving)

"""`within`: the cut of least work whose gradient, when compiled, keeps to a budget.

What a cut takes is predicted by `_choose_segments`, and the compiler has the last word:
it fuses, and it needs working memory. So the dynamic programme is solved for a row of
targets. Its answers, by falling work, are the same for every budget. Of these the one
is compiled that is predicted to fit; what the compiler says of it corrects the
predictions, and all that it said is remembered for the next budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from retape._bytes import format_bytes
from retape._errors import BudgetError
from retape.engines.jaxpr.jaxprs._avals import check_sizes_known, struct
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._jax_internals import axis_names
from retape.engines.jaxpr.layers.remat._choose_segments import (
    Cut,
    Cutter,
    beyond,
    least_peak,
    least_work_cut,
    segments_behind,
    views_first,
)
from retape.engines.jaxpr.layers.remat._compiled_footprint import footprint, gradients
from retape.engines.jaxpr.layers.remat._deferred_choice import run_late
from retape.engines.jaxpr.layers.remat._flat_program import Graph
from retape.engines.jaxpr.layers.remat._run_segments import Stretch, run_stretches
from retape.engines.jaxpr.layers.remat._strategies import Strategy

_TARGETS = 24
"""Budgets that the dynamic programme is solved for, from the least peak to all."""


_NEARLY_EQUAL = 1.05
"""Predictions that are as good as equal."""
_CAUTIOUS = 0.9
"""Of the budget, what a second guess aims at."""
_AT_MOST = 2
"""The function uncut is not tried if it is predicted to take so much more."""


@dataclass(frozen=True, slots=True)
class Within(Strategy):
    """`retape.within` as a policy."""

    budget: int

    def run(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        return run_late(graph, self, values)

    def choose(
        self, graph: Graph, moving: tuple[bool, ...]
    ) -> tuple[Graph, Sequence[Stretch]]:
        """The graph with views in front, and its cut for these moving inputs."""
        avals = [v.aval for v in graph.jaxpr.invars]
        check_sizes_known(avals, f"`policies.within({self.budget})`")
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
        own = dict(
            zip(_written_values(search.graph), _written_values(graph), strict=True)
        )
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


class _BudgetSearch:
    """Cuts of one function, by falling work, and what the compiler says of them."""

    def __init__(self, graph: Graph, first: int, moving: tuple[bool, ...]) -> None:
        self.graph, self.moving = graph, moving
        rest = beyond(graph, first)
        found = _cuts(rest)
        plain = [Stretch(0, len(graph), marked=False)]
        self.cuts = [*(segments_behind(first, cut.stretches) for cut in found), plain]
        self.predicted = [*(max(1, c.peak_bytes) for c in found), _everything(rest)]
        self.programs: dict[int, Any] = {}
        self.known: dict[tuple[int, int], int] = {}
        self.named: int | None = None
        """The least budget, once it was named: none below it is tried any more."""

    def best(self, budget: int) -> Sequence[Stretch] | None:
        """A cut of little work that keeps to the budget.

        The cut that is predicted to fit is compiled; what the compiler says corrects
        the predictions, and the cut that is then predicted to fit is compiled, if it is
        another one. If neither fits it is the cut of least prediction, or else the
        function uncut.
        """
        if self.named is not None and budget < self.named:
            return None
        before = len(self.known)
        for number in self.attempts(budget):
            if self.fits(number, budget):
                idle = len(self.known) == before
                return self.cuts[self.better(number, budget, idle)]
        return None

    def better(self, number: int, budget: int, idle: bool) -> int:
        """A cut of less work than one that fits, if nothing was compiled to find it.

        What cuts take does not rise with what is predicted of them, so the nearest one
        that was compiled may hide a better one: the most favourable is asked, too.
        """
        if not idle:
            return number
        for other in (self.guess(budget), self.hoped_for(budget)):
            if other is not None and other > number and self.fits(other, budget):
                number = other
        return number

    def hoped_for(self, budget: int) -> int | None:
        """The cut of least work that fits if predictions err as the worst one did."""
        known = {n: self.guessed(n) for n, _ in self.known}
        ratio = min(size / self.predicted[n] for n, size in known.items())
        ways = range(len(self.cuts) - 1, -1, -1)
        hoped = {i: known.get(i, ratio * self.predicted[i]) for i in ways}
        return next((i for i in ways if hoped[i] <= budget), None)

    def attempts(self, budget: int) -> Iterator[int]:
        """The cuts to try, each chosen when it is known what the last one takes.

        What was compiled before and fits comes first.
        """
        fitting = [n for n in self.programs if self.is_known_within(n, budget)]
        if fitting:
            yield max(fitting)
        for share in (1.0, _CAUTIOUS):
            number = self.guess(int(share * budget))
            if number is not None:
                yield number
        yield self.lowest
        if self.guessed(len(self.cuts) - 1) <= _AT_MOST * max(self.sizes(self.lowest)):
            yield len(self.cuts) - 1

    def is_known_within(self, number: int, budget: int) -> bool:
        """Whether all programs under a cut were compiled and keep to the budget."""
        count = len(self.gradients(number)[0])
        sizes = [self.known.get((number, -1 - i), budget + 1) for i in range(count)]
        return max(sizes) <= budget

    @property
    def lowest(self) -> int:
        """The cut of least work among those predicted to take the fewest bytes."""
        least = min(self.predicted)
        return max(
            i for i, p in enumerate(self.predicted) if p <= _NEARLY_EQUAL * least
        )

    def guess(self, budget: int) -> int | None:
        """The cut of least work that is predicted to fit, and not known not to."""
        ways = range(len(self.cuts) - 1, -1, -1)
        return next((i for i in ways if self.guessed(i) <= budget), None)

    def guessed(self, number: int) -> float:
        """What a cut takes, as far as it is known or predicted.

        A prediction is corrected as that of the nearest cut that was compiled was.
        """
        own = [size for (n, _), size in self.known.items() if n == number]
        if own:
            return max(own)
        seen = {n for n, _ in self.known}
        if not seen:
            return self.predicted[number]
        near = min(seen, key=lambda n: abs(n - number))
        return self.predicted[number] * self.guessed(near) / self.predicted[near]

    def least(self) -> int:
        """The smallest budget that `best` meets, after it did not meet one."""
        if self.named is None:
            top = len(self.cuts) - 1
            self.named = max(self.sizes(self.lowest))
            if (top, -1) in self.known:
                self.named = min(self.named, max(self.sizes(top)))
        return self.named

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
            names = axis_names(self.graph.jaxpr)
            taken = footprint(programs[program], *args, names=names)
            self.known[number, program] = taken.temp
        return self.known[number, program]

    def gradients(self, number: int) -> Any:
        """The programs for the gradient under a cut, and their arguments' types."""
        if number not in self.programs:
            found = _gradients(self.graph, self.cuts[number], self.moving)
            self.programs[number] = found
        return self.programs[number]


def _everything(graph: Graph) -> int:
    """A prediction of what the function takes uncut."""
    return max(1, Cutter(graph).everything)


def _cuts(graph: Graph) -> list[Cut]:
    """The answers of the dynamic programme for all targets, by falling work."""
    least = least_peak(Cutter(graph))
    cutter = Cutter(graph, ("mark", "products", "store"))
    found = {least.stretches: least}
    low, high = max(1, least.peak_bytes), max(1, cutter.everything)
    for i in range(_TARGETS):
        cut = least_work_cut(cutter, round(low * (high / low) ** (i / _TARGETS)))
        if cut is not None:
            found.setdefault(cut.stretches, cut)
    return sorted(found.values(), key=lambda cut: (-cut.work, cut.peak_bytes))


def _gradients(
    graph: Graph, stretches: Sequence[Stretch], moving: tuple[bool, ...]
) -> Any:
    structs = [struct(v.aval) for v in graph.jaxpr.invars]
    run = lambda values: run_stretches(graph, stretches, values)  # noqa: E731
    return gradients(run, structs, moving)


def _written_values(graph: Graph) -> list[Any]:
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


@cached(32)
def _search(printed: _Printed) -> _BudgetSearch:
    return _BudgetSearch(printed.graph, printed.first, printed.moving)

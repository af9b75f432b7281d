"""`within`: the cut of least work whose gradient, when compiled, keeps to a budget.

What a cut takes is predicted by `_choose_segments`, and the compiler has the last word:
it fuses, and it needs working memory. So the dynamic programme is solved for a row of
targets. Its answers, by falling work, are the same for every budget. At most three of
them are compiled for a budget: the one that is predicted to fit; then, predictions
corrected by what the compiler said, one of less work, or one that takes less and stands
at most half as far; and, if nothing fits, the ones of least prediction.

A scan is one operation here, and how scans are run is another choice of the same kind
(`_loop_search`): where they do most of the work it is made first, else if no cut fits;
and if neither does, both together.

What the compiler said is remembered, and so is what was answered: a greater budget is
never answered by a cut of more work, nor a smaller one by a cut of less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from jax.extend import core

from retape._bytes import format_bytes
from retape._errors import BudgetError
from retape.engines.jaxpr.calls._placed_budget import for_one_device, may_be_spread
from retape.engines.jaxpr.jaxprs._avals import check_sizes_known
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._structural_equality import deduplicate
from retape.engines.jaxpr.layers.loops._whole_loops import has_loops
from retape.engines.jaxpr.layers.remat._choose_segments import (
    Cut,
    Cutter,
    beyond,
    least_peak,
    least_work_cut,
    segments_behind,
    views_first,
)
from retape.engines.jaxpr.layers.remat._flat_program import Graph
from retape.engines.jaxpr.layers.remat._policy import Strategy
from retape.engines.jaxpr.layers.remat._run_segments import Stretch, run_stretches
from retape.engines.jaxpr.layers.remat._saves import Saves
from retape.engines.jaxpr.layers.strategies._compiled_footprint import (
    Inputs,
    MeasuredWays,
)
from retape.engines.jaxpr.layers.strategies._cutting import in_way, with_loops
from retape.engines.jaxpr.layers.strategies._deferred_choice import run_late
from retape.engines.jaxpr.layers.strategies._loop_search import loop_search

_TARGETS = 24
"""Budgets that the dynamic programme is solved for, from the least peak to all."""


_NEARLY_EQUAL = 1.05
"""Predictions that are as good as equal."""
_CAUTIOUS, _CORRECTED = 0.9, 0.97
"""Of the budget, what a first and a further guess aim at."""
_COMPILED = 3
"""Most cuts that are compiled for one budget."""
_HOPE = 0.5
"""The function uncut is tried if so much of its prediction fits: where values are made
element by element, XLA holds half of what is counted."""
_WORTH = 0.005
"""Of the function's work, what a further compilation should save."""


_SMALLER = "make the arguments smaller"
_OF_ONE = (
    "use a mesh with explicit axes if the arguments are spread over devices: on "
    "automatic ones these are the bytes that one device would need for all of it"
)

Evaluation = Callable[[Sequence[Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class Within(Strategy):
    """`retape.within` as a policy."""

    budget: int

    def run(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        return run_late(graph, self, values)

    def choose(self, graph: Graph, inputs: Inputs) -> Evaluation:
        """The graph cut for these moving inputs, its loops run in a way that fits.

        Raises:
            BudgetError: If nothing fits; with the least budget that would do.
        """
        avals = [v.aval for v in graph.jaxpr.invars]
        check_sizes_known(avals, f"`policies.within({self.budget})`")
        spread = may_be_spread(core.ClosedJaxpr(graph.jaxpr, ()))
        run, least = _fitting(graph, inputs, self.budget)
        if run is None:
            raise BudgetError(
                f"`within({self.budget})` ({format_bytes(self.budget)}) cannot be "
                "kept, whatever is run again. The least budget that would do is "
                f"{least} bytes ({format_bytes(least)}). Pass at least that, or "
                f"{_OF_ONE if spread else _SMALLER}.",
                least,
            )
        if not spread:
            return run
        looked_at = inputs.moving.index(True)

        def refitted(values: Sequence[Any]) -> list[Any]:
            known = list(values)
            known[looked_at] = for_one_device(known[looked_at], self.budget)
            return run(known)

        return refitted


@dataclass(frozen=True, slots=True)
class Least(Strategy):
    """What `Within` does under the smallest budget that it can keep."""

    def run(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        return run_late(graph, self, values)

    def choose(self, graph: Graph, inputs: Inputs) -> Evaluation:
        """As `Within.choose`."""
        _, least = _fitting(graph, inputs, 1)
        return Within(least).choose(graph, inputs)


Fit = tuple[Evaluation | None, int]
"""How to run a function within a budget; or `None`, and the least that would do."""


def _fitting(graph: Graph, inputs: Inputs, budget: int) -> Fit:
    """Cuts of the function, or ways of its loops, or at last both."""
    tries = [_by_cut, *([_by_loops, _by_both] if has_loops(graph) else [])]
    if graph.is_mostly_loops:
        tries[:2] = reversed(tries[:2])
    found: list[int] = []
    for attempt in tries:
        run, least = attempt(graph, inputs, budget)
        if run is not None:
            return run, least
        found.append(least)
    return None, min(found)


def _by_loops(graph: Graph, inputs: Inputs, budget: int) -> Fit:
    """All is stored but in loops, which are run in a way of less."""
    search = loop_search(graph, inputs)
    best = search.best(budget)
    if best is None:
        return None, search.least_way()[0]
    return partial(with_loops, graph, *best), budget


def _by_both(graph: Graph, inputs: Inputs, budget: int) -> Fit:
    """Loops in the way that takes least, and cuts around them."""
    inside, consts = in_way(graph, loop_search(graph, inputs).least_way()[1])
    run, least = _by_cut(inside, inputs.behind(consts), budget)
    if run is None:
        return None, least
    return lambda values: run([*consts, *values]), least


def _by_cut(graph: Graph, inputs: Inputs, budget: int) -> Fit:
    """The graph with views in front, cut between its operations."""
    graph, first = views_first(graph)
    program = deduplicate(core.ClosedJaxpr(graph.jaxpr, ()))
    search = _search(program, first, inputs)
    best = search.best(budget)
    if best is None:
        return None, search.least_budget()
    # The same program from another trace has variables of its own.
    own = dict(zip(_written_values(search.graph), _written_values(graph), strict=True))
    cut = [replace(s, saves=Saves(frozenset(map(own.get, s.saves.made)))) for s in best]
    return partial(run_stretches, graph, cut), budget


class _BudgetSearch(MeasuredWays):
    """Cuts of one function, by falling work, and what the compiler says of them."""

    def __init__(self, graph: Graph, first: int, inputs: Inputs) -> None:
        rest = beyond(graph, first)
        found = _cuts(rest)
        plain = [Stretch(0, len(graph), marked=False)]
        self.cuts = [*(segments_behind(first, cut.stretches) for cut in found), plain]
        whole = Cutter(rest)
        self.predicted = [*(max(1, c.peak_bytes) for c in found), max(1, whole.stored)]
        self.work = [*(c.work for c in found), 0]
        self.worth = _WORTH * whole.work[-1]
        run = lambda n, values: run_stretches(graph, self.cuts[n], values)  # noqa: E731
        super().__init__(graph, inputs, run)
        self.answers: dict[int, int] = {}
        self.named: int | None = None
        """The least budget, once it was named: none below it is tried any more."""

    def best(self, budget: int) -> Sequence[Stretch] | None:
        """A cut of little work that keeps to the budget."""
        if self.named is not None and budget < self.named:
            return None
        # Cuts that answered a smaller budget fit; beyond those that answered a greater
        # one, more memory would mean more work.
        top = len(self.cuts) - 1
        top = min((n for b, n in self.answers.items() if b >= budget), default=top)
        before = len(self.known)
        while len(self.known) < before + _COMPILED:
            left = before + _COMPILED - len(self.known)
            number = self.next_try(budget, top, left)
            if number is None:
                break
            self.fits(number, budget)
        found = self.fitting(budget, top)
        if found is None:
            return None
        self.answers[budget] = found
        return self.cuts[found]

    def fitting(self, budget: int, top: int) -> int | None:
        """The cut of least work of those that were compiled and fit."""
        asked = sorted((n for n in self.known if n <= top), reverse=True)
        return next((n for n in asked if self.fits(n, budget)), None)

    def next_try(self, budget: int, top: int, left: int) -> int | None:
        """The cut to compile next; `None` if what is known will do."""
        best = self.fitting(budget, top)
        if best is None:
            # A prediction that failed is a poor guide to those beside it: go half way.
            failed = min(self.known, default=2 * top + 1)
            top = min(top, failed // 2)
        guess = self.guess(budget, top)
        if best is None:
            # The last one is kept for what is most likely to fit.
            return self.last_resort() if guess is None or left == 1 else guess
        last = len(self.cuts) - 1
        hoped = _HOPE * self.predicted[last] <= budget and last not in self.known
        if hoped and top == last:
            return last
        if guess is None or guess < best:
            return None
        return guess if self.work[best] - self.work[guess] > self.worth else None

    def last_resort(self) -> int | None:
        """What is predicted to take the fewest bytes; then its like, of less work."""
        least = min(self.predicted)
        near = [i for i, p in enumerate(self.predicted) if p <= _NEARLY_EQUAL * least]
        return next((i for i in (near[0], near[-1]) if i not in self.known), None)

    def guess(self, budget: int, top: int) -> int | None:
        """The cut of least work that is predicted to fit, of those not compiled."""
        aim = (_CORRECTED if self.known else _CAUTIOUS) * budget
        ways = (i for i in range(top, -1, -1) if i not in self.known)
        return next((i for i in ways if self.guessed(i) <= aim), None)

    def guessed(self, number: int) -> float:
        """What a cut is predicted to take, corrected as its known neighbours were."""
        ratio = {n: size / self.predicted[n] for n, size in self.known.items()}
        if not ratio:
            return self.predicted[number]
        below = max((n for n in ratio if n < number), default=min(ratio))
        above = min((n for n in ratio if n > number), default=max(ratio))
        share = (number - below) / (above - below) if above != below else 0.0
        share = min(1.0, max(0.0, share))
        mean = (1 - share) * ratio[below] + share * ratio[above]
        return self.predicted[number] * mean

    def least_budget(self) -> int:
        """The smallest budget that `best` meets, after it did not meet one."""
        if self.named is None:
            self.named = self.known[self.least(self.known)]
        return self.named


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


def _written_values(graph: Graph) -> list[Any]:
    return [v for eqn in graph.jaxpr.eqns for v in eqn.outvars]


@cached(32)
def _search(program: core.ClosedJaxpr, first: int, inputs: Inputs) -> _BudgetSearch:
    return _BudgetSearch(Graph(program.jaxpr), first, inputs)

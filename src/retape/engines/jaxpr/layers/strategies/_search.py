"""The search for a budget: ways to run one function, by falling work, few compiled.

Ways are cuts of the function, whose bytes are predicted, or ways of its loops, whose
bytes are not. What the compiler said of one is remembered. At most three are compiled
for a budget: without predictions the one in the middle of those that may be the best;
else the one of least work that is predicted to fit, predictions being corrected by what
the compiler said; and, if nothing fits, the ones of least prediction.

What was answered is remembered, too: a greater budget is never answered by a way of
more work, nor a smaller one by a way of less.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any

from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._jax_internals import axis_names
from retape.engines.jaxpr.layers.remat._flat_program import Graph
from retape.engines.jaxpr.layers.strategies._compiled_footprint import (
    Inputs,
    footprint,
    gradients,
)

_NEARLY_EQUAL = 1.05
"""Predictions that are as good as equal."""
_CAUTIOUS, _CORRECTED = 0.9, 0.97
"""Of the budget, what a first and a further guess aim at."""
_COMPILED = 3
"""Most ways that are compiled for one budget."""
_HOPE = 0.5
"""The last way is tried if so much of its prediction fits: where values are made
element by element, XLA holds half of what is counted."""
_WORTH = 0.005
"""Of the function's work, what a further compilation should save."""


class Search:
    """Ways to run one function, by falling work, and what the compiler says of them.

    Whoever takes a gradient may want the value, too, so that a way has two programs.
    Where the first takes too much, the second is not compiled.

    Args:
        graph: The function.
        inputs: What is known of its inputs.
        run: Evaluates it in the way of a number.
        work: What each way does once more, as a fraction of the function's own work.
        predicted: Bytes that each is predicted to take, if that is known.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Inputs,
        run: Callable[[int, Sequence[Any]], Sequence[Any]],
        work: Sequence[float],
        predicted: Sequence[int] | None = None,
    ) -> None:
        self.graph, self.inputs, self.run = graph, inputs, run
        self.work, self.predicted = work, predicted
        self.known: dict[int, int] = {}
        """Temporaries of each way that was asked about, as far as they are known."""
        self._rest: dict[int, Iterator[int]] = {}
        self.answers: dict[int, int] = {}
        self.fewest: int | None = None
        """The way of fewest bytes, once it was named: nothing less is tried then."""

    def best(self, budget: int) -> int | None:
        """The way of least work that is found to keep to a budget."""
        if self.fewest is not None and budget < self.known[self.fewest]:
            return None
        # Ways that answered a smaller budget fit; beyond those that answered a greater
        # one, more memory would mean more work.
        top = len(self.work) - 1
        top = min((n for b, n in self.answers.items() if b >= budget), default=top)
        before = len(self.known)
        while (left := before + _COMPILED - len(self.known)) > 0:
            number = self._next_try(budget, top, left)
            if number is None:
                break
            self.fits(number, budget)
        found = self._fitting(budget, top)
        if found is not None:
            self.answers[budget] = found
        return found

    def least(self) -> int:
        """The way of fewest bytes, after `best` did not meet a budget."""
        if self.fewest is None:
            if self.predicted is None:
                self.best(1)
            self.fewest = self._least(self.known)
        return self.fewest

    def least_budget(self) -> int:
        """The smallest budget that `best` meets, after it did not meet one."""
        return self.known[self.least()]

    def fits(self, number: int, budget: int) -> bool:
        """Whether a way keeps to a budget, whichever of its programs is run."""
        if number not in self.known:
            self._rest[number] = self._temporaries(number)
            self.known[number] = next(self._rest[number])
        while self.known[number] <= budget:
            taken = next(self._rest[number], None)
            if taken is None:
                break
            self.known[number] = max(taken, self.known[number])
        return self.known[number] <= budget

    def _temporaries(self, number: int) -> Iterator[int]:
        structs = [struct(v.aval) for v in self.graph.jaxpr.invars]
        programs, args = gradients(partial(self.run, number), structs, self.inputs)
        names = axis_names(self.graph.jaxpr)
        return (footprint(p, *args, names=names).temp for p in programs)

    def _least(self, among: Collection[int]) -> int:
        while True:
            number = min(among, key=lambda n: self.known[n])
            if self.fits(number, self.known[number]):
                return number

    def _fitting(self, budget: int, top: int) -> int | None:
        """The way of least work of those that were compiled and fit."""
        asked = sorted((n for n in self.known if n <= top), reverse=True)
        return next((n for n in asked if self.fits(n, budget)), None)

    def _next_try(self, budget: int, top: int, left: int) -> int | None:
        """The way to compile next; `None` if what is known will do."""
        best = self._fitting(budget, top)
        if self.predicted is None:
            low = -1 if best is None else best
            high = min((n for n in self.known if n > low), default=top + 1)
            return (low + high) // 2 if low + 1 < high else None
        if best is None:
            # A prediction that failed is a poor guide to those beside it: go half way.
            failed = min(self.known, default=2 * top + 1)
            guess = self._guess(budget, min(top, failed // 2), self.predicted)
            # The last one is kept for what is most likely to fit.
            likely = guess is not None and left > 1
            return guess if likely else self._last_resort(self.predicted)
        last = len(self.work) - 1
        hoped = _HOPE * self.predicted[last] <= budget and last not in self.known
        if hoped and top == last:
            return last
        guess = self._guess(budget, top, self.predicted)
        if guess is None or guess < best:
            return None
        return guess if self.work[best] - self.work[guess] > _WORTH else None

    def _last_resort(self, predicted: Sequence[int]) -> int | None:
        """What is predicted to take the fewest bytes; then its like, of less work."""
        least = _NEARLY_EQUAL * min(predicted)
        near = [i for i, p in enumerate(predicted) if p <= least]
        return next((i for i in (near[0], near[-1]) if i not in self.known), None)

    def _guess(self, budget: int, top: int, predicted: Sequence[int]) -> int | None:
        """The way of least work that is predicted to fit, of those not compiled."""
        aim = (_CORRECTED if self.known else _CAUTIOUS) * budget
        ways = (i for i in range(top, -1, -1) if i not in self.known)
        return next((i for i in ways if self._guessed(i, predicted) <= aim), None)

    def _guessed(self, number: int, predicted: Sequence[int]) -> float:
        """What a way is predicted to take, corrected as the nearest known one was."""
        if not self.known:
            return predicted[number]
        near = min(self.known, key=lambda n: abs(n - number))
        return predicted[number] * self.known[near] / predicted[near]

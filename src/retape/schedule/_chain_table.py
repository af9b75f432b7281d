"""What is known of an unequal chain, and which choice attains V of `_chain`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple


class ChainCosts(NamedTuple):
    """A chain and its budget, in the units of its table.

    Attributes:
        forward: Cost of advancing each step.
        states: Size of the state before each step.
        tapes: Size of each step's tape.
        budget: What snapshots and tapes may take together.
        keep_tapes: Whether a tape may be kept while the run goes on.
    """

    forward: Sequence[float]
    states: Sequence[int]
    tapes: Sequence[int]
    budget: int
    keep_tapes: bool


class Choice(NamedTuple):
    """A decision for the steps from a on: tape the first ones, or advance to k.

    Attributes:
        taped: Steps that are taped; all that there are make a stage.
        split: Where the next state is; 0 if steps are taped.
    """

    taped: int
    split: int = 0


class ChainTable(ABC):
    """V for all stretches of a chain, and the choices that attain it."""

    def __init__(self, chain: ChainCosts) -> None:
        self.n, self.keep_tapes = len(chain.forward), chain.keep_tapes
        self.states, self.tapes = list(chain.states), list(chain.tapes)
        self.cost = [0.0, *accumulate(chain.forward)]
        self.tape = [0, *accumulate(chain.tapes)]
        self.budget = min(chain.budget, self.tape[-1] + sum(chain.states))
        self._known: dict[tuple[int, int, int], Choice] = {}

    @abstractmethod
    def value(self, a: int, b: int, room: int) -> float:
        """V(a, b, room); infinite if the room is too small."""

    def best(self) -> float:
        """V of the whole chain; infinite if the budget is too small."""
        return self.value(0, self.n, self.budget) if self.n else 0.0

    def choice(self, a: int, b: int, room: int) -> Choice:
        """The decision that attains V(a, b, room)."""
        if self.tape[b] - self.tape[a] <= room:
            return Choice(b - a)
        key = a, b, min(room, self.tape[-1] - self.tape[a])
        if key not in self._known:
            self._known[key] = self._choose(a, b, room)
        return self._known[key]

    def _choose(self, a: int, b: int, room: int) -> Choice:
        least, best, beside = inf, Choice(1), room - self.states[a]
        if self.keep_tapes:
            least = self.value(a + 1, b, room - self.tapes[a])
        for k in range(a + 1, b):
            cost = self.value(a, k, room) + (self.cost[k] - self.cost[a])
            if cost < least:
                cost += self.value(k, b, beside)
            if cost < least:
                least, best = cost, Choice(0, k)
        return best

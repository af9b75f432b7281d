"""The dynamic programme of unequal chains, and which choice attains V of `_chain`.

`table[a][b - a, i]` is V(a, b, room i) of `_chain`. The rooms of a start are those that
some schedule can leave there, so sizes need no common unit and single bytes stay exact
where few sums differ. A room in which all tapes from a on fit is as good as any larger
one, and one in which that of step a does not is as good as none.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from retape._errors import PlanError

LARGEST_TABLE = 30_000_000
"""The most entries: 240 MB."""

LARGEST_SEARCH = 4_000_000_000
"""The most sums that are compared: some seconds."""

CALL = 5_000
"""Sums that take as long as one call of NumPy."""

Costs: TypeAlias = NDArray[np.float64]
Sizes: TypeAlias = NDArray[np.int64]


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


class ChainTable:
    """V for all stretches of a chain, found at once, and the choices that attain it.

    Args:
        chain: Its costs.

    Raises:
        PlanError: If the table would be too large.
    """

    def __init__(self, chain: ChainCosts) -> None:
        self.n, self.keep_tapes = len(chain.forward), chain.keep_tapes
        self.states, self.tapes = list(chain.states), list(chain.tapes)
        self.cost = [0.0, *accumulate(chain.forward)]
        self.tape = [0, *accumulate(chain.tapes)]
        self.budget = min(chain.budget, self.tape[-1] + sum(chain.states))
        if self.budget >= 1 << 62:
            raise _too_large(self.n)
        self._rooms = self._all_rooms()
        self._table: list[Costs] = [np.empty((0, 0))] * self.n
        widest = max((len(rooms) for rooms in self._rooms), default=0)
        self._sums = np.empty((self.n + 1, widest))
        for a in reversed(range(self.n if widest else 0)):
            self._table[a] = self._fill(a)

    def best(self) -> float:
        """V of the whole chain; infinite if the budget is too small."""
        return self.value(0, self.n, self.budget) if self.n else 0.0

    def choice(self, a: int, b: int, room: int) -> Choice:
        """The decision that attains V(a, b, room)."""
        if self.tape[b] - self.tape[a] <= room:
            return Choice(b - a)
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

    def value(self, a: int, b: int, room: int) -> float:
        """V(a, b, room)."""
        if self.tape[b] - self.tape[a] <= room:
            return 0.0
        place = np.searchsorted(self._rooms[a], room)
        rooms = self._rooms[a]
        if place == len(rooms) or rooms[place] != room:
            return inf
        return float(self._table[a][b - a, place])

    def _all_rooms(self) -> list[Sizes]:
        """For each start what can be left there, in ascending order."""
        found, size, work = list[Sizes](), 0, 0
        # What is left beside the state before an earlier step.
        beside = np.zeros(0, dtype=np.int64)
        here = np.array([self.budget], dtype=np.int64)
        if self.budget >= self.tape[-1]:
            return [here[:0]] * self.n
        for a in range(self.n):
            rest = self.n - a
            here = np.union1d(here, beside)
            here = np.unique(np.minimum(here, self.tape[-1] - self.tape[a]))
            here = here[here >= self.tapes[a]]
            size += len(here) * rest
            work += (len(here) * rest // 2 + CALL) * rest
            if size > LARGEST_TABLE or work > LARGEST_SEARCH:
                raise _too_large(self.n)
            found.append(here)
            beside = np.union1d(beside, here[here >= self.states[a]] - self.states[a])
            if len(beside) > LARGEST_TABLE:
                raise _too_large(self.n)
            here = here - self.tapes[a] if self.keep_tapes else here[:0]
        return found

    def _fill(self, a: int) -> Costs:
        """The rows of the stretches that begin at a, the shortest first."""
        rooms, n = self._rooms[a], self.n
        rows = np.full((n - a + 1, len(rooms)), inf)
        rows[0] = 0.0
        fits = np.array(self.tape[a + 1 :])[:, None] - self.tape[a] <= rooms
        rows[1:][fits] = 0.0
        if self.keep_tapes and a + 1 < n:
            none = np.zeros(len(rooms))
            self._relax(rows[2:], none, a + 1, rooms - self.tapes[a])
        beside = rooms - self.states[a]
        for k in range(a + 1, n):
            first = rows[k - a] + (self.cost[k] - self.cost[a])
            self._relax(rows[k - a + 1 :], first, k, beside)
        return rows

    def _relax(self, rows: Costs, first: Costs, k: int, left: Sizes) -> None:
        """Take `first` and the steps from k on in what is left where that is less."""
        rooms = self._rooms[k]
        if not len(rooms):
            return
        low = int(np.searchsorted(left, int(rooms[0])))
        # From `high` on all tapes fit.
        high = int(np.searchsorted(left, self.tape[-1] - self.tape[k]))
        if high < len(left):
            part = rows[:, high:]
            np.minimum(part, first[high:], out=part)
        if low >= high:
            return
        places = np.searchsorted(rooms, left[low:high])
        start, stop = int(places[0]), int(places[-1]) + 1
        # A slice is several times faster; places ascend without repetition.
        where = slice(start, stop) if stop - start == high - low else places
        part, sums = rows[:, low:high], self._sums[: rows.shape[0], : high - low]
        np.add(self._table[k][1:, where], first[low:high], out=sums)
        np.minimum(part, sums, out=part)


def _too_large(n: int) -> PlanError:
    return PlanError(
        f"a chain of {n} steps with so many different sums of sizes is too large for "
        "the dynamic programme. Pass `units`, or fewer of them, such as `units=100`, "
        "or join steps."
    )

"""The dynamic programme of unequal chains as NumPy arrays, for large ones.

`table[a][b - a, i]` is V(a, b, room i) of `_chain`. The rooms of a start are those that
some schedule can leave there, so sizes need no common unit and single bytes stay exact
where few sums differ. A room in which all tapes from a on fit is as good as any larger
one, and one in which that of step a does not is as good as none.
"""

from __future__ import annotations

from math import inf
from typing import Any

from retape._errors import PlanError
from retape.schedule._chain_table import ChainCosts, ChainTable

LARGEST_TABLE = 30_000_000
"""The most entries: 240 MB."""

LARGEST_SEARCH = 4_000_000_000
"""The most sums that are compared: some seconds."""

CALL = 5_000
"""Sums that take as long as one call of NumPy."""


class ArrayTable(ChainTable):
    """V for all stretches of a chain, found at once.

    Args:
        chain: Its costs.
        numpy: The module.

    Raises:
        PlanError: If the table would be too large.
    """

    def __init__(self, chain: ChainCosts, numpy: Any) -> None:
        super().__init__(chain)
        self._np = numpy
        if self.budget >= 1 << 62:
            raise _too_large(self.n)
        self._rooms = self._all_rooms()
        self._table: list[Any] = [None] * self.n
        widest = max((len(rooms) for rooms in self._rooms), default=0)
        self._sums = self._np.empty((self.n + 1, widest))
        for a in reversed(range(self.n if widest else 0)):
            self._table[a] = self._fill(a)

    def value(self, a: int, b: int, room: int) -> float:
        """V(a, b, room)."""
        if self.tape[b] - self.tape[a] <= room:
            return 0.0
        place = self._np.searchsorted(self._rooms[a], room)
        rooms = self._rooms[a]
        if place == len(rooms) or rooms[place] != room:
            return inf
        return float(self._table[a][b - a, place])

    def _all_rooms(self) -> list[Any]:
        """For each start what can be left there, in ascending order."""
        np, found, size, work = self._np, list[Any](), 0, 0
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

    def _fill(self, a: int) -> Any:
        """The rows of the stretches that begin at a, the shortest first."""
        np, rooms, n = self._np, self._rooms[a], self.n
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

    def _relax(self, rows: Any, first: Any, k: int, left: Any) -> None:
        """Take `first` and the steps from k on in what is left where that is less."""
        np, rooms = self._np, self._rooms[k]
        if not len(rooms):
            return
        low = int(np.searchsorted(left, rooms[0]))
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

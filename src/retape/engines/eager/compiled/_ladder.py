"""The best plans met so far, one above the other: more bytes, less that is repeated."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple


class Rung(NamedTuple):
    """A plan that no other one met so far beats.

    Attributes:
        peak: Most bytes that it holds.
        cost: What it runs again.
        keep: The nodes that it saves.
    """

    peak: int
    cost: int
    keep: frozenset[int]


class Ladder:
    """Plans in order of their peaks, each cheaper than those before it."""

    def __init__(self) -> None:
        self._rungs: list[Rung] = []

    def __iter__(self) -> Iterator[Rung]:
        return iter(self._rungs)

    def __len__(self) -> int:
        return len(self._rungs)

    def __getitem__(self, number: int) -> Rung:
        return self._rungs[number]

    def offer(self, rung: Rung) -> None:
        """Take a plan in, and those out that it beats, unless it is beaten itself."""
        held = self.best(rung.peak)
        if held is not None and held.cost <= rung.cost:
            return
        low = high = bisect_left(self._rungs, rung.peak, key=lambda each: each.peak)
        while high < len(self._rungs) and self._rungs[high].cost >= rung.cost:
            high += 1
        self._rungs[low:high] = [rung]

    def best(self, budget: float) -> Rung | None:
        """The cheapest plan that holds no more than so many bytes."""
        place = bisect_right(self._rungs, budget, key=lambda each: each.peak)
        return self._rungs[place - 1] if place else None

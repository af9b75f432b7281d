"""The bytes that running a program again takes, up to each of its positions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from retape.engines.eager.analysis._columns import Columns, Rerun
from retape.engines.eager.trace._trace import Trace


def most_from_start(trace: Trace, saved: Sequence[tuple[int, int]]) -> int:
    """The most bytes of recomputing, from the program's start, what a step saved.

    Cotangents that wait at that step are among them. The bytes grow with the position
    and what waits there does not, so of a stretch no more can come than its end takes
    with the most that waits in it: one with less than was found is not looked at.

    Args:
        trace: A recorded trace.
        saved: Pairs of a slot and the step at which it was saved.
    """
    if not saved:
        return 0
    reruns = _FromStart(trace, saved)
    places, waiting = reruns.places, reruns.waiting
    found = [-1] * len(places)

    def most(k: int) -> int:
        if found[k] < 0:
            found[k] = reruns.most(places[k])
        return found[k] + waiting[k]

    best = max(most(0), most(len(places) - 1))
    stack = [(0, len(places) - 1)]
    while stack:
        low, high = stack.pop()
        if high - low < 2:
            continue
        inner = max(waiting[low + 1 : high])
        if found[high] + inner <= best:
            continue
        if found[low] == found[high]:
            best = max(best, found[high] + inner)
            continue
        middle = (low + high) // 2
        best = max(best, most(middle))
        stack += [(low, middle), (middle, high)]
    return best


class _FromStart:
    """Runs of a program from its start to a position.

    Attributes:
        places: Positions at which something that was saved has its value.
        waiting: At each, the most bytes of cotangents that wait where it was saved.
    """

    def __init__(self, trace: Trace, saved: Sequence[tuple[int, int]]) -> None:
        self._columns = columns = Columns.of(trace)
        slots, steps = np.array(saved, dtype=np.int64).T
        # A slot that was saved before it had a value gets it from a later step.
        places = np.maximum(steps, columns.made[slots] + 1)
        order = np.argsort(places, kind="stable")
        self._slots, self._until = slots[order], places[order] - 1
        most: dict[int, int] = {}
        for place, step in zip(places.tolist(), steps.tolist(), strict=True):
            most[place] = max(most.get(place, 0), columns.waiting_at(step))
        self.places = sorted(most)
        self.waiting = [most[place] for place in self.places]

    def most(self, place: int) -> int:
        """The most bytes at once, of all that is made before a position."""
        steps: Any = np.arange(place)
        rerun = Rerun(self._columns, steps)
        count = int(np.searchsorted(self._until, place))
        until: Any = np.full(len(self._columns.nbytes), -1)
        until[self._slots[:count]] = self._until[:count]
        wanted = self._slots[self._slots < len(rerun.first)]
        return rerun.peak(wanted, until[wanted])

"""The steps between two positions, run again and reversed: bytes, and narrow places."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np

from retape.engines.eager.analysis._columns import Columns, Rerun, crossing
from retape.engines.eager.trace._trace import Trace


class Span:
    """Some steps of a trace, with the uses of the slots that they make.

    `saved` has pairs of a slot and a step at which autograd saved it, in order.

    Attributes:
        steps: The steps that have to run to compute what is wanted.
        widths: For each position from start to end, the bytes made before it by these
            steps and used after it.
    """

    def __init__(
        self,
        trace: Trace,
        start: int,
        end: int,
        steps: Sequence[int],
        saved: Sequence[tuple[int, int]],
    ) -> None:
        self._trace, self._columns = trace, Columns.of(trace)
        self._start, self._end = start, end
        # As lists of numbers these took 72 bytes more an operator while a gap is there.
        self.steps = array("q", steps)
        # By slot, the last step at which it was saved.
        wanted = dict(saved)
        self._saved = sorted((step, trace.nbytes[s]) for s, step in wanted.items())
        self._saved_steps = [step for step, _ in self._saved]
        self._sums = [0]
        for _, nbytes in self._saved:
            self._sums.append(self._sums[-1] + nbytes)
        self._earlier = self._saved_before(saved)
        self._measure(wanted)
        # Of the loss, say, the backward takes most, and is over when it goes on.
        self._back = np.maximum.accumulate(self._columns.going_back[start : end + 1])

    def _measure(self, wanted: dict[int, int]) -> None:
        rerun = Rerun(self._columns, self.steps)
        mine, other = rerun.first >= 0, rerun.first >= 0
        other[rerun.among(wanted)] = False
        # By slot, the step that makes it and the last one that uses it.
        made = self._made = np.where(mine, rerun.steps[rerun.first], -1)
        used = self._used = np.where(mine, rerun.steps[rerun.last], -1)
        self._low = rerun.low
        for slot, step in wanted.items():
            place = slot - rerun.low
            if 0 <= place < len(used) and used[place] < step:
                used[place] = step
        start, length = self._start, self._end - self._start + 1

        def across(some: Any) -> Any:
            first, stop = made[some] + 1 - start, used[some] + 1 - start
            return crossing(first, stop, rerun.nbytes[some], length)

        inner = (used > made) & (made >= start)
        self.widths = array("q", across(inner).tobytes())
        alone = rerun.first[other], rerun.nbytes[other], len(rerun.steps)
        extra = rerun.kernel + np.bincount(*alone).astype(np.int64)
        late = rerun.steps >= start
        extra[late] += across(inner & other)[rerun.steps[late] - start]
        self._extra = np.maximum.accumulate(extra)
        self._steps = rerun.steps

    def _saved_before(
        self, saved: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int, int]]:
        """Repeated saves: when, at which later step, and the bytes, in order."""
        found: list[tuple[int, int, int]] = []
        after: dict[int, int] = {}
        for slot, step in reversed(saved):
            if after.get(slot, step) > step:
                found.append((step, after[slot], self._trace.nbytes[slot]))
            after[slot] = step
        return found[::-1]

    def margin(self, position: int) -> int:
        """Bytes needed beside what is held and wanted, to reverse up to a position.

        During the replay the cotangents of what crosses the position wait.
        """
        count = int(np.searchsorted(self._steps, position, "right"))
        transient = int(self._extra[count - 1]) if count else 0
        return max(transient + self.waiting_at(position), self.reverse_up_to(position))

    def reverse_up_to(self, position: int) -> int:
        """The most bytes of cotangents with which autograd goes back from there."""
        place = min(position - self._start, len(self._back) - 1)
        return int(self._back[place]) if place >= 0 else 0

    def waiting_at(self, position: int) -> int:
        """The bytes of cotangents that wait when the backward comes to a position."""
        return self._columns.waiting_at(position)

    def crossing(self, start: int, cut: int) -> set[int]:
        """Slots made in [start, cut) and used at or after `cut`."""
        made, used = self._made, self._used
        slots = np.flatnonzero((made >= start) & (made < cut) & (used >= cut))
        return set((slots + self._low).tolist())

    def saved_between(self, first: int, last: int) -> int:
        """Bytes saved by autograd between two steps, the last one included."""
        low = bisect_left(self._saved_steps, first)
        high = bisect_left(self._saved_steps, last + 1)
        earlier = self._earlier
        found = self._sums[high] - self._sums[low]
        if not earlier:
            return found
        begin, end = (bisect_left(earlier, (step,)) for step in (first, last + 1))
        return found + sum(n for _, again, n in earlier[begin:end] if again > last)

    def mean_width(self, cuts: Sequence[int]) -> float:
        """The bytes that cross a cut, on average."""
        if not cuts:
            return 0.0
        return sum(self.widths[cut - self._start] for cut in cuts) / len(cuts)

    def widest_unit(self, cuts: Sequence[int]) -> int:
        """The most bytes saved between two neighbouring cuts, and a replay's margin."""
        bounds = [self._start, *cuts, self._end + 1]
        pairs = zip(bounds, bounds[1:], strict=False)
        return max(self.saved_between(a, b - 1) for a, b in pairs)


def cut_into_units(span: Span, size: float, steps: int) -> list[int]:
    """Narrow positions, at most about `size` saved bytes or `steps` steps apart.

    Each unit is ended at the narrowest position in its second half. A unit has at
    least one step.
    """
    start, end = span._start, span._end
    cuts: list[int] = []
    begin = start
    while (limit := _reach(span, begin, size, steps)) < end:
        low = begin + max(1, (limit - begin + 1) // 2)
        best = min(
            range(low, max(low, limit) + 1), key=lambda p: (span.widths[p - start], -p)
        )
        cuts.append(best)
        begin = best
    return cuts


def _reach(span: Span, begin: int, size: float, steps: int) -> int:
    """The furthest end of a unit that begins at `begin`."""
    if size <= 0:
        return min(span._end, begin + steps)
    target = span._sums[bisect_left(span._saved_steps, begin)] + size
    index = bisect_left(span._sums, target)
    if index >= len(span._saved_steps):
        return span._end
    return min(max(begin + 1, span._saved_steps[index]), begin + steps)

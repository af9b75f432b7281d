"""A gap: what lies between a snapshot and the position that the backward has reached.

It is cut into *units* at narrow positions. A stage is a run of alpha units whose saved
values fit in the free memory together; with the snapshots that fit beside it, the
binomial split of Algorithm 799 (Griewank and Walther 2000) says where to plant the next
one. Free memory is read off at each stage, so that what earlier stages gave back is
used by the later ones.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from retape.engines.eager._limits import Limits
from retape.engines.eager.analysis._columns import Columns, Rerun, crossing
from retape.engines.eager.replay._replay import needed_steps
from retape.schedule._binomial import optimal_advances
from retape.schedule._split import binomial_split

if TYPE_CHECKING:
    from retape.engines.eager.trace._run import Run


class Gap:
    """The steps between a snapshot and the position asked for.

    Attributes:
        start: The position of the snapshot.
        end: The position asked for.
    """

    def __init__(self, run: "Run", start: int, end: int, limits: Limits) -> None:
        self._trace, self._limits = run.trace, limits
        self._columns = Columns.of(run.trace)
        self.start, self.end = start, end
        nbytes, storages = run.trace.nbytes, run.trace.held.storages
        saved = [
            (slot, step)
            for slot, step in run.living_with_steps(start, end)
            if slot not in storages
        ]
        wanted = dict(saved)  # by slot, the last step at which it was saved
        last = sorted((step, nbytes[slot]) for slot, step in wanted.items())
        self._saved_steps = [step for step, _ in last]
        self._sums = list(accumulate((size for _, size in last), initial=0))
        # Repeated saves: when, at which later step, and the bytes, in order.
        earlier, after = list[tuple[int, int, int]](), dict[int, int]()
        for slot, step in reversed(saved):
            if after.get(slot, step) > step:
                earlier.append((step, after[slot], nbytes[slot]))
            after[slot] = step
        self._earlier = earlier[::-1]
        self._measure(needed_steps(run.trace, wanted), wanted)
        # Of the loss, say, the backward takes most, and is over when it goes on.
        self._back = np.maximum.accumulate(self._columns.going_back[start : end + 1])

    def _measure(self, steps: Sequence[int], wanted: dict[int, int]) -> None:
        """What the steps that make some slots hold, and what crosses each position."""
        rerun = Rerun(self._columns, steps)
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
        start, length = self.start, self.end - self.start + 1

        def across(some: Any) -> Any:
            first, stop = made[some] + 1 - start, used[some] + 1 - start
            return crossing(first, stop, rerun.nbytes[some], length)

        inner = (used > made) & (made >= start)
        # As lists of numbers they took 72 bytes more an operator while a gap is there.
        self._widths = array("q", across(inner).tobytes())
        alone = rerun.first[other], rerun.nbytes[other], len(rerun.steps)
        extra = rerun.kernel + np.bincount(*alone).astype(np.int64)
        late = rerun.steps >= start
        extra[late] += across(inner & other)[rerun.steps[late] - start]
        self._extra = np.maximum.accumulate(extra)
        self._steps = rerun.steps

    def covers(self, start: int, position: int) -> bool:
        """Tell whether this analysis serves a request."""
        return self.start <= start and position <= self.end

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

    def free(self, position: int) -> float:
        """Bytes that recomputed values may take now, to reverse up to a position.

        During the replay the cotangents of what crosses the position wait.
        """
        count = int(np.searchsorted(self._steps, position, "right"))
        transient = int(self._extra[count - 1]) if count else 0
        beside = max(
            transient + self._columns.waiting_at(position), self._reverse(position)
        )
        return self._trace.memory - self._trace.counter.live - beside

    def _reverse(self, position: int) -> int:
        """The most bytes of cotangents with which autograd goes back from there."""
        place = min(position - self.start, len(self._back) - 1)
        return int(self._back[place]) if place >= 0 else 0

    def fits(self, first: int, position: int) -> bool:
        """Tell whether what was saved between two steps can be recomputed at once."""
        return self.saved_between(first, position) <= self.free(position)

    def admits(self, again: int, left: int, position: int) -> bool:
        """Tell whether there is room for a replay now, and for going back after it.

        Args:
            again: The most bytes that the replay holds at once.
            left: Those that it leaves for autograd.
            position: Where the backward is.
        """
        waiting = again + self._columns.waiting_at(position)
        most = max(waiting, left + self._reverse(position))
        return most <= self._trace.memory - self._trace.counter.live

    def next_action(self, start: int, position: int) -> tuple[bool, int]:
        """The next action for values saved up to `position`, from a snapshot.

        Returns:
            `(True, cut)` to plant a snapshot at `cut`, or `(False, first)` to recompute
            what was saved from `first` on.
        """
        if self._limits.snapshots is None and self.fits(start, position):
            return False, start
        units = [start, *(cut for cut in self._units if start < cut <= position)]
        alpha, slots = self._stage_length(units, position)
        stages = -(-len(units) // alpha)
        if stages == 1:
            return False, start
        if slots == 1:
            return False, units[(stages - 1) * alpha]
        return True, units[binomial_split(stages, slots) * alpha]

    def crossing(self, start: int, cut: int) -> set[int]:
        """Slots made in [start, cut) that the rest of the gap uses."""
        made, used = self._made, self._used
        slots = np.flatnonzero((made >= start) & (made < cut) & (used >= cut))
        return set((slots + self._low).tolist())

    def last_cut(self, position: int) -> int:
        """The start of the last unit up to a position."""
        before = [cut for cut in self._units if cut <= position]
        return before[-1] if before else self.start

    def shorter(self, first: int, position: int) -> int:
        """The start of a stage of about half as many units; the shortest has a step."""
        cuts = [cut for cut in self._units if first < cut < position]
        return cuts[len(cuts) // 2] if cuts else position

    @cached_property
    def _units(self) -> list[int]:
        """The cut points of a gap; a gap that is one stage never asks."""
        if self._limits.snapshots is not None:
            return self._cut(0, self._limits.stage)
        free = self.free(self.end)
        size = max(1.0, free / 8)
        units = self._cut(size, len(self._steps) + 1)
        while size > 1 and self._widest(units) > free:
            size = max(1.0, size / 4)
            units = self._cut(size, len(self._steps) + 1)
        return units

    def _cut(self, size: float, steps: int) -> list[int]:
        """Narrow positions, at most about `size` saved bytes or `steps` steps apart.

        Each unit is ended at the narrowest position in its second half. A unit has at
        least one step.
        """
        cuts, begin = list[int](), self.start
        while (limit := self._reach(begin, size, steps)) < self.end:
            low = begin + max(1, (limit - begin + 1) // 2)
            places = range(low, max(low, limit) + 1)
            begin = min(places, key=lambda p: (self._widths[p - self.start], -p))
            cuts.append(begin)
        return cuts

    def _reach(self, begin: int, size: float, steps: int) -> int:
        """The furthest end of a unit that begins at `begin`."""
        if size <= 0:
            return min(self.end, begin + steps)
        target = self._sums[bisect_left(self._saved_steps, begin)] + size
        index = bisect_left(self._sums, target)
        if index >= len(self._saved_steps):
            return self.end
        return min(max(begin + 1, self._saved_steps[index]), begin + steps)

    def _widest(self, cuts: Sequence[int]) -> int:
        """The most bytes saved between two neighbouring cuts."""
        bounds = pairwise([self.start, *cuts, self.end + 1])
        return max(self.saved_between(a, b - 1) for a, b in bounds)

    def _stage_length(self, units: list[int], position: int) -> tuple[int, int]:
        """Units in a stage, and snapshots to use, the one at the start included."""
        if self._limits.snapshots is not None:
            held = len(self._trace.snapshots)
            return 1, max(1, self._limits.snapshots - held + 1)
        count, cuts = len(units), units[1:]
        across = sum(self._widths[cut - self.start] for cut in cuts)
        width = max(1.0, across / max(1, len(cuts)))
        room = self.free(position)
        best, chosen = float("inf"), (1, 1)
        alpha = 1
        while alpha <= count:
            tape = self.saved_between(units[-alpha], position)
            slots = 1 + int(max(0.0, room - tape) / width)
            if tape > room and alpha > 1:
                break
            stages = -(-count // alpha)
            cost = alpha * optimal_advances(stages, min(slots, stages))
            if cost <= best:
                best, chosen = cost, (alpha, min(slots, stages))
            alpha = alpha + max(1, alpha // 4)
        return chosen

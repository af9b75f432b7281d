"""Multistage time steps: the stages of a step may be kept in the place of its state.

An adjoint of a Runge-Kutta step needs the values at its l inner stages. Kept in a slot
they take l states, and the step is not run again when it is swept back. That is a mixed
schedule with tapes of l states. Where the scheme is stiffly accurate the last of them
*is* the state after the step, so what is kept is a place to go on from, too. With p the
units left, L steps whose start is in hand take the advances

    V(L, p)   0 if L = 1, else the least of
              Y(L-1, p-l)      the stages of the first step are kept, if p >= l
              W(L, p-1)        the state is kept, if p >= 1
    Y(L, p)   0 if L = 1, else the least of
              V(L, p)          nothing more is asked of the stages than their sweep
              min over i of  i + V(L-i, p) + Y(i, p)       they are gone on from, later
    W(L, p)   min over i of  i + V(L-i, p) + X(i, p)
    X(i, p)   0 if i = 1, else the least of W(i, p) and V(i, p+1)

(the setting of Zhang and Constantinescu 2021, whose counts have a slot of l + 1 units
where a scheme is not stiffly accurate; a tape without the state after it takes l).
Among equal advances the fewest writes are taken, as in `_mixed_table`.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import add

from retape._errors import PlanError
from retape.schedule._action import (
    Action,
    Advance,
    Drop,
    Restore,
    Reverse,
    Store,
    Sweep,
    Tape,
)
from retape.schedule._check import replay
from retape.schedule._cost import Counts
from retape.schedule._mixed import Mixed
from retape.schedule._repr_html import schedule_html
from retape.schedule._whole import settle

EXACT = 24_000_000
"""The most (length^2 * budget) for which the programme is run: a second or so."""

_ADVANCE = 1 << 64
_NEVER = 1 << 200


@dataclass(frozen=True, slots=True)
class Multistage:
    """The fewest steps run again where slots may hold the stages of a step.

    Its stream restores a state from the slot of a tape, if the scheme is stiffly
    accurate: `replay(..., restarts=True)` checks it.

    Args:
        length: Steps to reverse.
        budget: How many states fit.
        stages: How many states the stages of a step take.
        stiffly_accurate: Whether the last stage is the state after the step, as in
            Radau, Lobatto IIIC and most SDIRK schemes; otherwise the schedule is that
            of `Mixed(length, budget, state=1, tape=stages)`.

    Raises:
        PlanError: If a number cannot be, or the table would be too large.
        BudgetError: If no schedule is within the budget.

    Examples:
        >>> from retape.schedule import Multistage, Schedule, replay
        >>> schedule = Multistage(30, budget=10, stages=2, stiffly_accurate=True)
        >>> replay(schedule, 30, restarts=True).advances, schedule.advances()
        (26, 26)
        >>> Multistage(30, budget=10, stages=2).advances()
        27
        >>> Schedule(30, snapshots=10).counts().advances
        48
    """

    length: int
    budget: int
    stages: int
    stiffly_accurate: bool = False

    def _repr_html_(self) -> str:
        """Counts and a picture, for notebooks."""
        return schedule_html(self)

    def __post_init__(self) -> None:
        settle(self, "length", "budget", "stages")
        self._mixed()  # It refuses what cannot be.
        size = self.length**2 * (self._room() + 1)
        if self.stiffly_accurate and size > EXACT:
            raise PlanError(
                f"`length={self.length}` with `budget={self.budget}` takes a table of "
                f"{size} sums, and {EXACT} are the most. Pass "
                "`stiffly_accurate=False`: it has no such limit."
            )

    def advances(self) -> int:
        """The steps run without a tape; each of them is run once more with one.

        Examples:
            >>> Multistage(10, budget=3, stages=1).advances()
            9
        """
        if not self.stiffly_accurate:
            return self._mixed().counts().advances
        if self.length <= 1:
            return 0
        return self._table().value[self._room()][self.length] // _ADVANCE

    def counts(self) -> Counts:
        """The counts of a replay."""
        if not self.stiffly_accurate:
            return self._mixed().counts()
        return replay(self, self.length, restarts=True)

    def __iter__(self) -> Iterator[Action]:
        if not self.stiffly_accurate:
            return iter(self._mixed())
        if self.length <= 1:
            return iter([Reverse(0, self.length)])
        return _Stream(self._table()).actions(self.length, self._room())

    def _mixed(self) -> Mixed:
        return Mixed(self.length, self.budget, state=1, tape=self.stages)

    def _room(self) -> int:
        # More than the stages of every step but the last are never kept.
        return min(self.budget, max(0, self.length - 1) * self.stages)

    def _table(self) -> "_Table":
        return _table(self.length, self._room(), self.stages)


class _Table:
    """V, Y and W for all lengths and rooms, and the splits of the last two."""

    def __init__(self, length: int, room: int, stages: int) -> None:
        self.stages = stages
        rooms = range(room + 1)
        self.value = [[0, 0] for _ in rooms]
        self.after = [[0, 0] for _ in rooms]
        self.inner = [[_NEVER, _NEVER] for _ in rooms]
        self.after_splits, self.splits = (
            [[0, 0] for _ in rooms],
            [[0, 0] for _ in rooms],
        )
        # i * ADVANCE + Y(i, p), and the same of X.
        self._again = [[0, _ADVANCE] for _ in rooms]
        self._left = [[0, _ADVANCE] for _ in rooms]
        for size in range(2, length + 1):
            for p in rooms:
                self._extend(size, p)

    def tapes(self, size: int, p: int) -> bool:
        """Whether V keeps the stages of the first step."""
        return p >= self.stages and self._taped(size, p) <= self._kept(size, p)

    def goes_on(self, size: int, p: int) -> bool:
        """Whether Y goes on from the stages once more, later."""
        return self.after[p][size] < self.value[p][size]

    def gives_back(self, size: int, p: int) -> bool:
        """Whether X gives up the slot of a state that was read."""
        return self.value[p + 1][size] < self.inner[p][size]

    def _extend(self, size: int, p: int) -> None:
        value = self.value[p]
        behind = value[size - 1 : 0 : -1]
        inner, self_split = _least(self._left[p][1:size], behind)
        self.inner[p].append(inner)
        self.splits[p].append(self_split)
        value.append(min(self._taped(size, p), self._kept(size, p)))
        after, split = _least(self._again[p][1:size], behind)
        self.after[p].append(min(after, value[size]))
        self.after_splits[p].append(split)
        self._again[p].append(size * _ADVANCE + self.after[p][size])
        if p:
            # X beside a state that is kept: V with one unit more is known now.
            kept = min(self.inner[p - 1][size], value[size])
            self._left[p - 1].append(size * _ADVANCE + kept)

    def _taped(self, size: int, p: int) -> int:
        p -= self.stages
        return 1 + self.after[p][size - 1] if p >= 0 else _NEVER

    def _kept(self, size: int, p: int) -> int:
        return 1 + self.inner[p - 1][size] if p else _NEVER


def _least(parts: list[int], behind: list[int]) -> tuple[int, int]:
    sums = list(map(add, parts, behind))
    least = min(sums, default=_NEVER)
    return least, 1 + sums.index(least) if sums else 0


@lru_cache(maxsize=4)
def _table(length: int, room: int, stages: int) -> _Table:
    return _Table(length, room, stages)


@dataclass(slots=True)
class _Part:
    """A slot in use: what it holds begins at `at`; up to `stop` is to be reversed."""

    at: int
    stop: int
    slot: int
    room: int
    tape: bool

    @property
    def start(self) -> int:
        """The step that can be gone on from."""
        return self.at + self.tape


class _Stream:
    """The actions that the table means, with one entry on a stack per slot in use."""

    def __init__(self, table: _Table) -> None:
        self.table = table
        self.stack: list[_Part] = []
        self.free: list[int] = []

    def actions(self, length: int, room: int) -> Iterator[Action]:
        yield from self._descend(0, length, room, None)
        while self.stack:
            part = self.stack[-1]
            size = part.stop - part.start
            if part.tape and not size:
                yield Sweep(part.at, part.at + 1, part.slot)
                yield self._pop()
                continue
            yield Restore(part.start, part.slot)
            if part.tape:
                yield from self._descend(part.start, part.stop, part.room, part)
            elif size == 1:
                yield self._pop()
                yield Reverse(part.at, part.stop)
            elif self.table.gives_back(size, part.room):
                yield self._pop()
                yield from self._descend(part.at, part.stop, part.room + 1, None)
            else:
                split = part.at + self.table.splits[part.room][size]
                stop, part.stop = part.stop, split
                yield Advance(part.at, split)
                yield from self._descend(split, stop, part.room, None)

    def _descend(
        self, lo: int, hi: int, room: int, held: _Part | None
    ) -> Iterator[Action]:
        """From a start in hand to the last step; `held`: the stages that end there."""
        table = self.table
        while hi - lo > 1:
            size, at = hi - lo, lo
            if held is not None:
                lo += table.after_splits[room][size] if table.goes_on(size, room) else 0
                held.stop, held = lo, None
                if at < lo:
                    yield Advance(at, lo)
                    continue
            slot = heapq.heappop(self.free) if self.free else len(self.stack)
            if table.tapes(size, room):
                room, lo = room - table.stages, lo + 1
                yield Tape(at, lo, slot)
                held = _Part(at, lo, slot, room, tape=True)
                self.stack.append(held)
            else:
                room -= 1
                lo += table.splits[room][size]
                yield Store(at, slot)
                yield Advance(at, lo)
                self.stack.append(_Part(at, lo, slot, room, tape=False))
        if held is not None:
            held.stop = lo
        yield Reverse(lo, hi)

    def _pop(self) -> Drop:
        part = self.stack.pop()
        heapq.heappush(self.free, part.slot)
        return Drop(part.at, part.slot)

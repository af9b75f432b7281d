"""Two tiers: few cheap slots in memory, more slots on a disk that costs time."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from .._errors import PlanError
from ._action import Action, Advance, Drop, Restore, Reverse, Store
from ._binomial import optimal_advances
from ._cost import binomial_counts
from ._split import stage_rule
from ._tier_table import Table, TierCosts, TierName, tier_table
from ._tree import n_ary_tree

EXACT = 4_000_000
"""The most (stages^2 * memory * disk) for which the dynamic programme is run."""


@dataclass(frozen=True, slots=True)
class TwoTier:
    """The cheapest persistent schedule over memory and disk.

    Up to a size (`exact` tells) it is the optimum by dynamic programming. Beyond, the
    run is cut into equal segments whose starts lie on disk, each reversed binomially in
    memory, with the best number of segments; `bound` says how far from the optimum that
    can be.

    Args:
        length: Steps to reverse.
        memory: Slots in memory.
        disk: Slots on disk.
        costs: What things cost, per stage.
        stage: Steps taped at a time.

    Example:
        >>> from retape.schedule import TierCosts, TwoTier, replay
        >>> schedule = TwoTier(20, memory=2, disk=3, costs=TierCosts(disk_write=2))
        >>> replay(schedule, 20, capacity={"memory": 2, "disk": 3}).advances
        42
        >>> schedule.cost(), schedule.exact
        (96.0, True)
    """

    length: int
    memory: int
    disk: int
    costs: TierCosts = TierCosts()
    stage: int = 1

    def __post_init__(self) -> None:
        slots = self.memory, self.disk
        if min(slots) < 0 or (sum(slots) == 0 and self.length > self.stage):
            raise PlanError(
                f"`memory={self.memory}` and `disk={self.disk}` cannot be: the start "
                "state needs a slot on one of them. Pass numbers that are not negative "
                "and not both zero."
            )
        if self.length < 0 or self.stage < 1:
            raise PlanError(
                f"`length={self.length}` and `stage={self.stage}` cannot be: pass no "
                "steps or more, in stages of at least one."
            )

    @property
    def stages(self) -> int:
        """ceil(length / stage)."""
        return -(-self.length // self.stage)

    @property
    def exact(self) -> bool:
        """Whether this is the optimum, or a near-optimum within `bound`."""
        memory, disk = self._useful()
        return self.stages**2 * (memory + 1) * (disk + 1) <= EXACT

    def cost(self) -> float:
        """The cost of everything, taping and sweeping back included."""
        both = self.length / self.stage * (self.costs.tape + self.costs.backward)
        if self.stages <= 1:
            return both
        if self.exact:
            return both + self._table().best(self.stages, *self._useful())
        return both + self._segments()[0]

    def bound(self) -> float:
        """At most this times the optimum: 1 if exact.

        No schedule advances less than the binomial one with all slots together.
        """
        if self.exact:
            return 1.0
        both = self.length / self.stage * (self.costs.tape + self.costs.backward)
        slots = self.memory + self.disk
        least = both + self.costs.forward * optimal_advances(self.stages, slots)
        return self.cost() / least

    def __iter__(self) -> Iterator[Action]:
        if self.exact or self.stages <= 1:
            return iter(_Stream(self._table(), self.length, self.stage))
        return _segmented(self, self._segments()[1])

    def _useful(self) -> tuple[int, int]:
        # More slots than stages, less one, are never taken.
        most = max(0, self.stages - 1)
        return min(self.memory, most), min(self.disk, most)

    def _table(self) -> "Table":
        return tier_table(self.stages, *self._useful(), self.costs)

    def _segments(self) -> tuple[float, int]:
        """The least cost over the numbers of segments, and that number."""
        most = min(self.disk + 1, self.stages) if self.memory else 1
        return min((self._segment_cost(count), count) for count in _spread(most))

    def _segment_cost(self, count: int) -> float:
        size = -(-self.stages // count)
        others, last = divmod(self.stages - 1, size)
        per = size * self.costs.forward + self.costs.disk_write + self.costs.disk_read
        per += self._one_tier_cost(size) if others else 0
        return others * per + self._one_tier_cost(last + 1)

    def _one_tier_cost(self, stages: int) -> float:
        tier = "memory" if self.memory else "disk"
        counts = binomial_counts(stages, 1, self.memory or self.disk)
        io = counts.stores * self.costs.write(tier)
        io += counts.restores * self.costs.read(tier)
        return counts.advances * self.costs.forward + io


@dataclass(slots=True)
class _Part:
    """A stored interval of stages, with the slots that are free beside its own."""

    lo: int
    hi: int
    m: int
    d: int
    tier: TierName
    slot: int


class _Stream:
    """The actions that a table means, with one entry on a stack per snapshot."""

    def __init__(self, table: Table, length: int, stage: int) -> None:
        self.table, self.length, self.stage = table, length, stage
        memory, disk = table.shape
        self.free = {"memory": list(range(memory)), "disk": list(range(disk))}
        self.stack: list[_Part] = []

    def __iter__(self) -> Iterator[Action]:
        yield from self._descend(0, -(-self.length // self.stage), *self.table.shape)
        while self.stack:
            part = self.stack[-1]
            at = part.lo * self.stage
            yield Restore(at, part.slot, part.tier)
            size = part.hi - part.lo
            if size == 1:
                yield self._pop(at)
                yield Reverse(at, min(part.hi * self.stage, self.length))
            elif self.table.moves(part.tier, size, part.m, part.d):
                yield self._pop(at)
                m, d = self.table.with_slot(part.tier, part.m, part.d)
                yield from self._descend(part.lo, part.hi, m, d)
            else:
                yield from self._advance(part)

    def _descend(self, lo: int, hi: int, m: int, d: int) -> Iterator[Action]:
        """The interval's start is in hand and not stored."""
        if hi - lo <= 1:
            yield Reverse(lo * self.stage, min(hi * self.stage, self.length))
            return
        tier = self.table.tier(hi - lo, m, d)
        slot = heapq.heappop(self.free[tier])
        yield Store(lo * self.stage, slot, tier)
        left = (m - 1, d) if tier == "memory" else (m, d - 1)
        part = _Part(lo, hi, *left, tier, slot)
        self.stack.append(part)
        yield from self._advance(part)

    def _advance(self, part: _Part) -> Iterator[Action]:
        """The interval's start is in hand and stored: go to its right part."""
        row = self.table.split[part.tier, part.m, part.d]
        middle, end = part.lo + row[part.hi - part.lo], part.hi
        yield Advance(part.lo * self.stage, middle * self.stage)
        part.hi = middle
        yield from self._descend(middle, end, part.m, part.d)

    def _pop(self, at: int) -> Drop:
        part = self.stack.pop()
        heapq.heappush(self.free[part.tier], part.slot)
        return Drop(at, part.slot, part.tier)


def _segmented(schedule: TwoTier, count: int) -> Iterator[Action]:
    """Segments on disk, each reversed in memory; or a single tier throughout."""
    size = -(-schedule.stages // max(1, count)) * schedule.stage
    n, starts = schedule.length, range(0, schedule.length, size)
    for slot, at in enumerate(starts[:-1]):
        yield Store(at, slot, "disk")
        yield Advance(at, at + size)
    tier: TierName = "memory" if schedule.memory else "disk"
    slots = schedule.memory or schedule.disk
    for slot, at in reversed(list(enumerate(starts))):
        if at != starts[-1]:
            yield Restore(at, slot, "disk")
            yield Drop(at, slot, "disk")
        yield from _one_tier(at, min(at + size, n), schedule.stage, slots, tier)


def _one_tier(
    start: int, stop: int, stage: int, slots: int, tier: TierName
) -> Iterator[Action]:
    length = stop - start
    rule = stage_rule("binomial")
    for action in n_ary_tree(length, stage, min(slots, length), 0, rule):
        match action:
            case Advance(a, b):
                yield Advance(start + a, start + b)
            case Reverse(a, b):
                yield Reverse(start + a, start + b)
            case Store(step, slot):
                yield Store(start + step, slot, tier)
            case Restore(step, slot):
                yield Restore(start + step, slot, tier)
            case Drop(step, slot):
                yield Drop(start + step, slot, tier)


def _spread(most: int) -> list[int]:
    """All numbers up to `most`, or a few hundred that grow geometrically."""
    numbers: list[int] = []
    k = 1
    while k <= most:
        numbers.append(k)
        k += max(1, k // 64)
    return numbers if most < 1 or numbers[-1] == most else [*numbers, most]

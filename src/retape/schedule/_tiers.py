"""Two tiers: few cheap slots in memory, more slots on a disk that costs time."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

from retape._errors import PlanError
from retape.schedule._action import Action, Advance, Drop, Restore, Store
from retape.schedule._binomial import least_sweeps, optimal_advances
from retape.schedule._cost import Counts, TierCounts, binomial_counts
from retape.schedule._policy_counts import Totals, policy_counts
from retape.schedule._policy_stream import Stream
from retape.schedule._repr_html import schedule_html
from retape.schedule._split import stage_rule
from retape.schedule._tier_policy import TierPolicy, policy_totals
from retape.schedule._tier_table import (
    ENDLESS,
    HAS_NUMPY,
    Room,
    Table,
    TierCosts,
    TierName,
    tier_table,
    transfer_cost,
)
from retape.schedule._tree import Tree, n_ary_tree
from retape.schedule._whole import settle

EXACT = 400_000_000 if HAS_NUMPY else 4_000_000
"""The most (stages^2 * memory * disk) for which the dynamic programme is run: some
seconds. Without NumPy it takes thirty times as long."""


@dataclass(frozen=True, slots=True)
class TwoTier:
    """The cheapest persistent schedule over memory and disk.

    Up to a size (`exact` tells) it is the optimum by dynamic programming. Beyond, it is
    the cheaper of two: equal segments whose starts lie on disk, each reversed
    binomially in memory, with the best number of segments; or binomial splits for all
    slots down to intervals about which the programme decides. `bound` says how far from
    the optimum that can be.

    Args:
        length: Steps to reverse.
        memory: Slots in memory.
        disk: Slots on disk.
        costs: What things cost, per stage.
        stage: Steps taped at a time.

    Examples:
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

    def _repr_html_(self) -> str:
        """Counts and a picture, for notebooks."""
        return schedule_html(self)

    def __post_init__(self) -> None:
        settle(self, "length", "memory", "disk", "stage")
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
        """Tell whether this is the optimum, or a near-optimum within `bound`."""
        return self._room() is not None

    def cost(self) -> float:
        """The cost of everything, taping and sweeping back included."""
        both = self.length / self.stage * (self.costs.tape + self.costs.backward)
        if self.stages <= 1:
            return both
        room = self._room()
        if room is not None and self.costs.forward == 0:
            # The table's advances are nearly free, not free.
            total = policy_counts(self._table(room), self.stages, 1, room)
            return both + transfer_cost(total, self.costs)
        if room is not None:
            return both + self._table(room).best(self.stages, *room)
        far = self._far()
        return both + (far[0] if far is not None else self._segments()[0])

    def bound(self) -> float:
        """At most this times the optimum: 1 if exact.

        No schedule advances less than the binomial one with all slots together, and
        none is cheaper than the best one for a disk that never fills up.
        """
        if self.exact:
            return 1.0
        both = self.length / self.stage * (self.costs.tape + self.costs.backward)
        slots = self.memory + self.disk
        least = self.costs.forward * optimal_advances(self.stages, slots)
        if (endless := self._endless()) is not None:
            least = max(least, self._table(endless).best(self.stages, *endless))
        cost = self.cost()
        if both + least > 0:
            return cost / (both + least)
        return inf if cost else 1.0

    def __iter__(self) -> Iterator[Action]:
        room = self._room()
        if room is not None:
            return iter(Stream(self._table(room), self.length, self.stage, room))
        if self._far() is not None:
            policy, room = self._policy(), (self.memory, self.disk)
            return iter(Stream(policy, self.length, self.stage, room))
        return _segmented(self, self._segments()[1])

    def counts(self) -> Counts:
        """The counts of a replay, by recurrence or in closed form."""
        return self.counts_and_sweeps()[0]

    def counts_and_sweeps(self) -> tuple[Counts, int]:
        """The counts, and the most times that a step is advanced."""
        room = self._room()
        if room is not None:
            return self._counted(room)
        if (far := self._far()) is not None:
            counts = replace(
                _counts_of(far[1]),
                advances=far[1].counts.advances * self.stage,
                taped=self.length,
                longest_stage=min(self.stage, self.length),
            )
            return counts, far[1].sweeps
        return _segmented_counts(self, self._segments()[1])

    def _useful(self) -> tuple[int, int]:
        # More slots than stages, less one, are never taken.
        most = max(0, self.stages - 1)
        return min(self.memory, most), min(self.disk, most)

    def _endless(self) -> Room | None:
        """Any number of slots on disk, if the table for that is not too large."""
        memory, disk = self._useful()
        fits = disk > 0 and self.stages**2 * (memory + 1) <= EXACT
        return (memory, ENDLESS) if fits else None

    def _room(self) -> Room | None:
        """The slots of the table that has the optimum, if it is not too large."""
        memory, disk = self._useful()
        size = self.stages**2 * (memory + 1) * (disk + 1)
        if self.stages <= 1 or size <= EXACT:
            return memory, disk
        endless = self._endless()
        if endless is not None and self._counted(endless)[0].peak_disk <= disk:
            return endless
        return None

    def _counted(self, room: Room) -> tuple[Counts, int]:
        total = policy_counts(self._table(room), self.length, self.stage, room)
        return _counts_of(total), total.sweeps

    def _policy(self) -> TierPolicy:
        return TierPolicy(self.memory, self.disk, self.costs)

    def _far(self) -> tuple[float, Totals] | None:
        """The splits beyond the table, where they are cheaper than segments."""
        found = policy_totals(self.stages, self._policy())
        return found if found and found[0] < self._segments()[0] else None

    def _table(self, room: Room) -> Table:
        return tier_table(self.stages, *room, self.costs)

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


def _counts_of(total: Totals) -> Counts:
    """The counts of a policy, each tier's with them."""
    counts, stores, restores = total.counts, total.disk_stores, total.disk_restores
    disk = TierCounts(stores, restores, counts.peak_disk)
    stores, restores = counts.stores - stores, counts.restores - restores
    memory = TierCounts(stores, restores, counts.peak_memory)
    return replace(counts, tiers={"memory": memory, "disk": disk})


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
        part = range(at, min(at + size, n))
        yield from _one_tier(part, schedule.stage, slots, tier)


def _segmented_counts(schedule: TwoTier, count: int) -> tuple[Counts, int]:
    size = -(-schedule.stages // max(1, count))
    others, last = divmod(schedule.stages - 1, size)
    slots = schedule.memory or schedule.disk
    parts = [(1, last + 1), (others, size)] if others else [(1, last + 1)]
    each = [(times, binomial_counts(stages, 1, slots)) for times, stages in parts]
    peak = max(counts.peak_snapshots for _, counts in each)
    inside = TierCounts(
        sum(times * one.stores for times, one in each),
        sum(times * one.restores for times, one in each),
        peak,
    )
    starts = TierCounts(others, others, others)
    tiers = {"memory": inside, "disk": starts}
    if not schedule.memory:
        tiers = {"memory": TierCounts(), "disk": inside}
    counts = Counts(
        advances=schedule.stage
        * (others * size + sum(times * one.advances for times, one in each)),
        taped=schedule.length,
        stores=others + inside.stores,
        restores=others + inside.restores,
        reverses=schedule.stages,
        peak_snapshots=max(
            others + each[0][1].peak_snapshots,
            others - 1 + each[-1][1].peak_snapshots,
        ),
        longest_stage=schedule.stage,
        peak_disk=others if schedule.memory else peak,
        peak_memory=peak if schedule.memory else 0,
        tiers=tiers,
    )
    most = max(least_sweeps(stages, slots) for _, stages in parts)
    return counts, most + (others > 0)


def _one_tier(steps: range, stage: int, slots: int, tier: TierName) -> Iterator[Action]:
    rule = stage_rule("binomial")
    tree = Tree(steps.stop, stage, range(slots + 1), rule, steps.start, tier)
    return n_ary_tree(tree, min(slots, len(steps)), 0)


def _spread(most: int) -> list[int]:
    """All numbers up to `most`, or a few hundred that grow geometrically."""
    numbers: list[int] = []
    k = 1
    while k <= most:
        numbers.append(k)
        k += max(1, k // 64)
    return numbers if most < 1 or numbers[-1] == most else [*numbers, most]

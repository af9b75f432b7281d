"""Any number of tiers: a device, the host, a disk, a remote store."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from math import inf, prod
from typing import Any, NamedTuple

from retape._errors import PlanError
from retape.schedule._action import Action, Drop, Restore, Store
from retape.schedule._binomial import least_sweeps, optimal_advances
from retape.schedule._cost import Counts, TierCounts
from retape.schedule._nested_policy import NestedPolicy
from retape.schedule._policy_stream import Stream, Totals, policy_counts
from retape.schedule._repr_html import schedule_html
from retape.schedule._room_table import ENDLESS, HAS_NUMPY, Rate, Rooms, room_table
from retape.schedule._tier import Tier
from retape.schedule._tier_table import TierCosts
from retape.schedule._tiers import TwoTier
from retape.schedule._whole import settle

EXACT = 400_000_000 if HAS_NUMPY else 2_000_000
"""The most (stages^2 * rooms * tiers) for which the dynamic programme over all rooms is
run: some seconds."""

_CELLS = 1_500_000
"""The most (stages * rooms * tiers) of it: some 100 MB."""

_INTERVALS = 40_000
"""The most different intervals that are counted beyond it: some seconds. Where several
rules are tried, a quarter of it each."""

_CLOSED = 20_000
"""Beyond so many stages two tiers are weighed without a table of their own."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """The cheapest persistent schedule over any number of tiers.

    Up to a size (`exact` tells) it is the optimum by dynamic programming over all
    combinations of free slots. Beyond, a tier is used only inside the intervals that
    the tiers after it cut, which takes a table of the sum of the slots; and where that
    is too large, the longest intervals are cut at binomial splits. `bound` says how far
    from the optimum that can be.

    Args:
        length: Steps to reverse.
        tiers: The tiers, the nearest first; their snapshots are numbers.
        costs: Of `forward`, `tape` and `backward`, per stage. The tiers have their own.
        stage: Steps taped at a time.

    Raises:
        PlanError: If there is no room for the start state, or two tiers have one name;
            when used, if a run costs more than numbers of floating point hold.

    Examples:
        >>> from retape.schedule import Hierarchy, Tier, replay
        >>> tiers = Tier("device", 2), Tier("host", 3, 1, 1), Tier("disk", 9, 6, 6)
        >>> schedule = Hierarchy(60, tiers)
        >>> replay(schedule, 60, capacity={t.name: t.snapshots for t in tiers}).advances
        145
        >>> schedule.cost(), schedule.exact
        (298.0, True)
        >>> schedule.counts().tiers["disk"]
        TierCounts(stores=1, restores=1, peak=1)
    """

    length: int
    tiers: tuple[Tier, ...]
    costs: TierCosts = TierCosts()
    stage: int = 1

    def _repr_html_(self) -> str:
        """Counts and a picture, for notebooks."""
        return schedule_html(self)

    def __post_init__(self) -> None:
        settle(self, "length", "stage")
        object.__setattr__(self, "tiers", tuple(self.tiers))
        if self.length < 0 or self.stage < 1:
            raise PlanError(
                f"`length={self.length}` and `stage={self.stage}` cannot be: pass no "
                "steps or more, in stages of at least one."
            )
        check_tiers(self.tiers)
        if not any(self._slots) and self.length > self.stage:
            raise PlanError(
                f"`tiers={self.tiers!r}` cannot be: the start state needs a slot on "
                "one of them. Pass at least one snapshot on one."
            )

    @property
    def stages(self) -> int:
        """ceil(length / stage)."""
        return -(-self.length // self.stage)

    @property
    def tier_names(self) -> tuple[str, ...]:
        """The tiers, the nearest first: what a store of several parts is told."""
        return tuple(tier.name for tier in self.tiers)

    @property
    def exact(self) -> bool:
        """Tell whether this is the optimum, or a near-optimum within `bound`."""
        return self.stages <= 1 or _decided(self).exact

    def cost(self) -> float:
        """The cost of everything, taping and sweeping back included."""
        decided = 0.0 if self.stages <= 1 else _decided(self).cost
        return self._taping + decided

    def bound(self) -> float:
        """At most this times the optimum: 1 if exact.

        No schedule advances less than the binomial one with all slots together, reads
        fewer than one snapshot for each stage but the last, or is cheaper than the best
        one for tiers that never fill up.
        """
        if self.exact:
            return 1.0
        least = self._taping + _least(self)
        if least > 0:
            return max(1.0, self.cost() / least)
        return inf if self.cost() else 1.0

    def __iter__(self) -> Iterator[Action]:
        if self.stages <= 1:
            return iter(TwoTier(self.length, 1, 0, stage=self.stage))
        decided = _decided(self)
        if decided.pair is not None:
            return _renamed(decided.pair, decided.names)
        return iter(Stream(decided.policy, self.length, self.stage, decided.room))

    def counts(self) -> Counts:
        """The counts of a replay, by recurrence or in closed form."""
        return self.counts_and_sweeps()[0]

    def counts_and_sweeps(self) -> tuple[Counts, int]:
        """The counts, and the most times that a step is advanced."""
        if self.stages <= 1:
            counts, sweeps = TwoTier(
                self.length, 1, 0, stage=self.stage
            ).counts_and_sweeps()
            tiers = {tier.name: TierCounts() for tier in self.tiers}
            return replace(counts, tiers=tiers), sweeps
        decided = _decided(self)
        each = {tier.name: TierCounts() for tier in self.tiers}
        return (
            replace(
                decided.total.counts,
                advances=decided.total.counts.advances * self.stage,
                taped=self.length,
                longest_stage=min(self.stage, self.length),
                tiers=each | dict(decided.total.counts.tiers),
            ),
            decided.total.sweeps,
        )

    @property
    def _slots(self) -> list[int]:
        return [int(tier.snapshots) for tier in self.tiers]

    @property
    def _taping(self) -> float:
        return self.length / self.stage * (self.costs.tape + self.costs.backward)

    def useful(self) -> tuple[Rooms, tuple[Rate, ...]]:
        """The tiers with a slot, those that cost most last, and their slots.

        More slots than stages, less one, are never taken.
        """
        kept = [tier for tier in self.tiers if tier.snapshots]
        kept.sort(key=lambda tier: (tier.read + tier.write, tier.read))
        most = max(1, self.stages - 1)
        return (
            tuple(min(int(tier.snapshots), most) for tier in kept),
            tuple(Rate(tier.name, tier.write, tier.read) for tier in kept),
        )


class _Decided(NamedTuple):
    """How a run is reversed: by a policy, or over two of its tiers."""

    total: Totals
    cost: float
    exact: bool
    policy: Any = None
    room: Any = None
    pair: TwoTier | None = None
    names: tuple[str, str] = ("", "")


@lru_cache(maxsize=4)
def _decided(schedule: Hierarchy) -> _Decided:
    """The cheapest of what can be told in some seconds."""
    slots, rates = schedule.useful()
    forward = schedule.costs.forward
    dearest = max(forward, *(rate.write + rate.read for rate in rates))
    if not dearest * float(min(schedule.stages, _CLOSED)) ** 2 < inf:
        return _told(schedule, [])  # No table could tell schedules apart.
    for room in _rooms(schedule.stages, slots):
        table = room_table(schedule.stages, room, rates, forward)
        total = _counted(table, schedule.stages, room, rates)
        if _fits(total, slots, rates):
            cost = _cost(total, rates, forward)
            return _told(schedule, [_Decided(total, cost, True, table, room)])
    found: list[_Decided] = []
    for order in _orders(slots, rates):
        found += _nested(schedule.stages, *order, forward)
    if not found or schedule.stages > _CLOSED:
        found += _pairs(schedule, slots, rates)
    return _told(schedule, found)


def _told(schedule: Hierarchy, found: Sequence[_Decided]) -> _Decided:
    """The cheapest, if its cost is a number.

    Raises:
        PlanError: If all are too large for one.
    """
    best = min(found, key=lambda each: each.cost, default=None)
    if best is None or not best.cost < inf:
        raise PlanError(
            f"`tiers={schedule.tiers!r}` cost more than numbers of floating point "
            f"hold, 10^308, over {schedule.stages} stages. Pass costs in a larger "
            "unit, such as the time of a step."
        )
    return best


def _nested(
    stages: int, slots: Rooms, rates: tuple[Rate, ...], forward: float
) -> Iterator[_Decided]:
    """What the rules for long runs come to, up to one that is the best of its kind."""
    for policy in _policies(stages, slots, rates, forward):
        try:
            most = _INTERVALS if policy.endless else _INTERVALS // 4
            total = _counted(policy, stages, policy.room, rates, most)
        except PlanError:
            continue
        if _fits(total, slots, rates):
            cost = _cost(total, rates, forward)
            yield _Decided(total, cost, False, policy, policy.room)
            if policy.is_whole:
                return


def _orders(
    slots: Rooms, rates: tuple[Rate, ...]
) -> list[tuple[Rooms, tuple[Rate, ...]]]:
    """The tiers from near to far; orders, if one is dear to read and cheap to write.

    It says which tiers cut the intervals that others are used in.
    """
    kept = [*zip(slots, rates, strict=True)]
    found = {
        tuple(sorted(kept, key=lambda each: (each[1].read, each[1].write))),
        tuple(sorted(kept, key=lambda each: (each[1].write, each[1].read))),
        tuple(kept),
    }
    return [
        (tuple(count for count, _ in order), tuple(rate for _, rate in order))
        for order in sorted(found)
    ]


def _policies(
    stages: int, slots: Rooms, rates: tuple[Rate, ...], forward: float
) -> Iterator[NestedPolicy]:
    """Rules for a run that is too long for a table of all rooms."""
    if not HAS_NUMPY:
        return
    periodic = NestedPolicy(slots, rates, forward, stages, endless=True)
    if stages <= periodic.reach or periodic.period:
        yield periodic
    far = slots[-1]
    while far and least_sweeps(stages, sum(slots[:-1]) + far) <= _INTERVALS // 8:
        yield NestedPolicy((*slots[:-1], far), rates, forward, stages)
        far //= 8


def _fits(total: Totals, slots: Rooms, rates: tuple[Rate, ...]) -> bool:
    tiers = total.counts.tiers
    return all(
        tiers[rate.name].peak <= most for rate, most in zip(rates, slots, strict=True)
    )


def _rooms(stages: int, slots: Rooms) -> Iterator[Rooms]:
    """The tables that are not too large: of all slots, or of endless ones."""
    order = sorted(range(len(slots)), key=lambda axis: -slots[axis])
    room = list(slots)
    for axis in [None, *order]:
        if axis is not None:
            room[axis] = ENDLESS
        rooms = prod(1 if most == ENDLESS else most + 1 for most in room)
        cells = stages * rooms * len(slots)
        if cells <= _CELLS and cells * stages <= EXACT:
            yield tuple(room)


def _counted(
    policy: Any, stages: int, room: Any, rates: Sequence[Rate], most: int | None = None
) -> Totals:
    names = [rate.name for rate in rates]
    return policy_counts(policy, stages, 1, room, most=most, tiers=names)


def _cost(total: Totals, rates: Sequence[Rate], forward: float) -> float:
    """What a run costs beside taping; infinite if no number holds it."""
    counts = total.counts
    try:
        cost = counts.advances * forward
        for rate in rates:
            tier = counts.tiers[rate.name]
            cost += tier.stores * rate.write + tier.restores * rate.read
    except OverflowError:
        return inf
    return cost


def _pairs(
    schedule: Hierarchy, slots: Rooms, rates: tuple[Rate, ...]
) -> Iterator[_Decided]:
    """Two tiers out of all, or the only one: what is told in closed form."""
    places = list(combinations(range(len(slots)), 2)) or [(0, 0)]
    for near, far in places:
        one, other = rates[near], rates[far]
        costs = TierCosts(
            schedule.costs.forward, 0, 0, one.write, one.read, other.write, other.read
        )
        disk = slots[far] if far != near else 0
        pair = TwoTier(schedule.stages, slots[near], disk, costs)
        try:
            counts, sweeps = pair.counts_and_sweeps()
            cost = pair.cost()
        except OverflowError:
            continue
        names = one.name, other.name
        tiers = {one.name: counts.tiers["memory"]}
        if far != near:
            tiers[other.name] = counts.tiers["disk"]
        on_disk = tiers["disk"].peak if "disk" in tiers else 0
        others = [each.peak for name, each in tiers.items() if name != "disk"]
        counts = replace(
            counts,
            tiers=tiers,
            peak_disk=on_disk,
            peak_memory=sum(others) if on_disk else counts.peak_snapshots,
        )
        total = Totals(counts, sweeps, 0, 0, 0)
        whole = replace(pair, length=schedule.length, stage=schedule.stage)
        yield _Decided(total, cost, False, pair=whole, names=names)


def _renamed(pair: TwoTier, names: tuple[str, str]) -> Iterator[Action]:
    """The actions over two tiers, with the tiers' own names."""
    for action in pair:
        if isinstance(action, Store | Restore | Drop):
            yield action._replace(tier=names[action.tier == "disk"])
        else:
            yield action


def _least(schedule: Hierarchy) -> float:
    """What no schedule is cheaper than, besides taping and sweeping back."""
    slots, rates = schedule.useful()
    stages, forward = schedule.stages, schedule.costs.forward
    try:
        least = forward * optimal_advances(stages, sum(slots))
    except OverflowError:
        least = 0.0  # No bound that is a number.
    least += (stages - 1) * min(rate.read for rate in rates)
    least += min(rate.write for rate in rates)
    for known in range(len(slots) - 1, -1, -1):
        # From a tier on they are one, endless, at the least of their costs.
        beyond = rates[known:]
        one = Rate(
            "beyond",
            min(rate.write for rate in beyond),
            min(rate.read for rate in beyond),
        )
        room = (*slots[:known], ENDLESS)
        cells = stages * prod(most + 1 for most in slots[:known]) * (known + 1)
        if cells <= _CELLS and cells * stages <= EXACT:
            table = room_table(stages, room, (*rates[:known], one), forward)
            return max(least, table.best(stages, *room))
    return least


def check_tiers(tiers: Sequence[object]) -> None:
    """Refuse what are no tiers, and two of one name.

    Raises:
        PlanError: If so.
    """
    names: list[str] = []
    for tier in tiers:
        if not isinstance(tier, Tier):
            raise PlanError(
                f"`{tier!r}` is no tier. Pass `retape.Tier(name, snapshots)`."
            )
        names.append(tier.name)
    if not names or len(names) != len(set(names)):
        raise PlanError(
            f"tiers named {names} cannot be: pass at least one, each with a name of "
            "its own, since snapshots are found by it."
        )

"""Which schedule over several tiers is cheapest: the rules, and what each comes to.

By dynamic programming over all free slots where that is small enough. Beyond, by tiers
that are used only inside the intervals that the tiers after them cut, by two of the
tiers, and by the costs that the counts of each have.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from math import inf, prod
from typing import Any, NamedTuple

from retape._errors import PlanError
from retape.schedule._action import Action, Drop, Restore, Store
from retape.schedule._binomial import least_sweeps, optimal_advances
from retape.schedule._nested_policy import NestedPolicy
from retape.schedule._policy_counts import Totals, policy_counts
from retape.schedule._room_table import ENDLESS, HAS_NUMPY, Rate, Rooms, room_table
from retape.schedule._tier import Tier
from retape.schedule._tier_table import TierCosts
from retape.schedule._tiers import TwoTier

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


class Task(NamedTuple):
    """What is to be decided.

    Attributes:
        length: Steps.
        stage: Steps in a stage.
        slots: Of each tier that has some, no more than could be taken.
        rates: The costs of these tiers.
        costs: Of a step.
        tiers: As the caller gave them, for messages.
    """

    length: int
    stage: int
    slots: Rooms
    rates: tuple[Rate, ...]
    costs: TierCosts
    tiers: tuple[Tier, ...]

    @property
    def stages(self) -> int:
        """ceil(length / stage)."""
        return -(-self.length // self.stage)


class Decided(NamedTuple):
    """How a run is reversed: by a policy, or over two of its tiers."""

    total: Totals
    cost: float
    exact: bool
    policy: Any = None
    room: Any = None
    pair: TwoTier | None = None
    names: tuple[str, str] = ("", "")


@lru_cache(maxsize=4)
def decided(task: Task) -> Decided:
    """The cheapest of what can be told in some seconds."""
    slots, rates = task.slots, task.rates
    forward = task.costs.forward
    dearest = max(forward, *(rate.write + rate.read for rate in rates))
    if not dearest * float(min(task.stages, _CLOSED)) ** 2 < inf:
        return _told(task, [])  # No table could tell schedules apart.
    for room in _rooms(task.stages, slots):
        table = room_table(task.stages, room, rates, forward)
        total = _counted(table, task.stages, room, rates)
        if _fits(total, slots, rates):
            cost = _cost(total, rates, forward)
            return _told(task, [Decided(total, cost, True, table, room)])
    found: list[Decided] = []
    for order in _orders(slots, rates):
        found += _nested(task.stages, *order, forward)
    if not found or task.stages > _CLOSED:
        found += _pairs(task, slots, rates)
    return _told(task, found)


def _told(task: Task, found: Sequence[Decided]) -> Decided:
    """The cheapest, if its cost is a number.

    Raises:
        PlanError: If all are too large for one.
    """
    best = min(found, key=lambda each: each.cost, default=None)
    if best is None or not best.cost < inf:
        raise PlanError(
            f"`tiers={task.tiers!r}` cost more than numbers of floating point "
            f"hold, 10^308, over {task.stages} stages. Pass costs in a larger "
            "unit, such as the time of a step."
        )
    return best


def _nested(
    stages: int, slots: Rooms, rates: tuple[Rate, ...], forward: float
) -> Iterator[Decided]:
    """What the rules for long runs come to, up to one that is the best of its kind."""
    for policy in _policies(stages, slots, rates, forward):
        try:
            most = _INTERVALS if policy.endless else _INTERVALS // 4
            total = _counted(policy, stages, policy.room, rates, most)
        except PlanError:
            continue
        if _fits(total, slots, rates):
            cost = _cost(total, rates, forward)
            yield Decided(total, cost, False, policy, policy.room)
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


def _pairs(task: Task, slots: Rooms, rates: tuple[Rate, ...]) -> Iterator[Decided]:
    """Two tiers out of all, or the only one: what is told in closed form."""
    places = list(combinations(range(len(slots)), 2)) or [(0, 0)]
    for near, far in places:
        one, other = rates[near], rates[far]
        costs = TierCosts(
            task.costs.forward, 0, 0, one.write, one.read, other.write, other.read
        )
        disk = slots[far] if far != near else 0
        pair = TwoTier(task.stages, slots[near], disk, costs)
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
        whole = replace(pair, length=task.length, stage=task.stage)
        yield Decided(total, cost, False, pair=whole, names=names)


def renamed(pair: TwoTier, names: tuple[str, str]) -> Iterator[Action]:
    """The actions over two tiers, with the tiers' own names."""
    for action in pair:
        if isinstance(action, Store | Restore | Drop):
            yield action._replace(tier=names[action.tier == "disk"])
        else:
            yield action


def least_cost(task: Task) -> float:
    """What no schedule is cheaper than, besides taping and sweeping back."""
    slots, rates = task.slots, task.rates
    stages, forward = task.stages, task.costs.forward
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

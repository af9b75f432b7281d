"""Which schedule over several tiers is cheapest: the rules, and what each comes to.

By dynamic programming over all free slots where that is small enough. Beyond, by tiers
that are used only inside the intervals that the tiers after them cut, by equal segments
or binomial splits over two of the tiers, and by the costs that the counts of each have.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from math import inf, prod
from typing import Any, NamedTuple

from retape._errors import PlanError
from retape.schedule._binomial import least_sweeps, optimal_advances
from retape.schedule._policy_counts import MOST_INTERVALS, Totals, policy_counts
from retape.schedule._tables._kept_table import kept_table
from retape.schedule._tables._nested_slots import nested_policies
from retape.schedule._tables._segment_policy import segment_policies
from retape.schedule._tables._space import ENDLESS, Rooms
from retape.schedule._tables._table_policy import slots_for_parts, slots_told_apart
from retape.schedule._tier import StepCosts, Tier

EXACT = 800_000_000
"""The most (stages^2 * rooms * tiers) for which the dynamic programme over all rooms is
run: some seconds."""

_CELLS = 1_500_000
"""The most (stages * rooms * tiers) of it: some 100 MB."""

_INTERVALS = 40_000
"""The most different intervals that are counted beyond it: some seconds. Where several
rules are tried, a quarter of it each."""

_TABLED = 20_000
"""The most stages whose costs a table adds up: their sum must be a number."""


class Task(NamedTuple):
    """What is to be decided.

    Attributes:
        length: Steps.
        stage: Steps in a stage.
        slots: Of each tier that has some, no more than could be taken.
        tiers: These tiers, those that cost most last. What they hold `slots` says.
        costs: Of a step.
        given: As the caller gave them, for messages.
    """

    length: int
    stage: int
    slots: Rooms
    tiers: tuple[Tier, ...]
    costs: StepCosts
    given: tuple[Tier, ...]

    @property
    def stages(self) -> int:
        """ceil(length / stage)."""
        return -(-self.length // self.stage)


class Decided(NamedTuple):
    """How a run is reversed: by a policy, with its room at the beginning."""

    total: Totals
    cost: float
    exact: bool
    policy: Any
    room: Any


@lru_cache(maxsize=8)
def decided(task: Task) -> Decided:
    """The cheapest of what can be told in some seconds."""
    slots, tiers = task.slots, task.tiers
    forward = task.costs.forward
    dearest = max(forward, *(tier.write + tier.read for tier in tiers))
    if not dearest * float(min(task.stages, _TABLED)) ** 2 < inf:
        return _cheapest(task, [])  # No table could tell schedules apart.
    for room in _rooms(task.stages, slots):
        policy = slots_told_apart(task.stages, room, tiers, forward)
        best = _weighed(task, slots, tiers, policy, room, exact=True)
        if best is not None:
            return _cheapest(task, [best])
    found: list[Decided] = []
    for order in _orders(slots, tiers):
        found += _nested(task, *order)
    for near, far in _pairs(slots):
        found += _segments(task, near, far)
        found += _split(task, near, far)
    return _cheapest(task, found)


def _cheapest(task: Task, found: Sequence[Decided]) -> Decided:
    """The cheapest, if its cost is a number.

    Raises:
        PlanError: If all are too large for one.
    """
    best = min(found, key=lambda each: each.cost, default=None)
    if best is None or not best.cost < inf:
        raise PlanError(
            f"`tiers={task.given!r}` cost more than numbers of floating point "
            f"hold, 10^308, over {task.stages} stages. Pass costs in a larger "
            "unit, such as the time of a step."
        )
    return best


def _weighed(
    task: Task,
    slots: Rooms,
    tiers: tuple[Tier, ...],
    policy: Any,
    room: Any,
    *,
    most: int = MOST_INTERVALS,
    exact: bool = False,
) -> Decided | None:
    """What a policy comes to, if it fits the slots and is counted in some seconds."""
    names = [tier.name for tier in tiers]
    try:
        total = policy_counts(policy, task.stages, 1, room, most=most, tiers=names)
    except PlanError:
        return None
    used = total.counts.tiers
    if any(used[name].peak > n for name, n in zip(names, slots, strict=True)):
        return None
    cost = _cost(total, tiers, task.costs.forward)
    return Decided(total, cost, exact, policy, room)


def _nested(task: Task, slots: Rooms, tiers: tuple[Tier, ...]) -> Iterator[Decided]:
    """What the rules for long runs come to, up to one that is the best of its kind."""
    forward = task.costs.forward
    rules = nested_policies(task.stages, slots, tiers, forward, _INTERVALS // 8)
    for policy, room, is_endless, is_whole in rules:
        most = _INTERVALS if is_endless else _INTERVALS // 4
        found = _weighed(task, slots, tiers, policy, room, most=most)
        if found is not None:
            yield found
            if is_whole:
                return


def _orders(
    slots: Rooms, tiers: tuple[Tier, ...]
) -> list[tuple[Rooms, tuple[Tier, ...]]]:
    """The tiers from near to far; orders, if one is dear to read and cheap to write.

    It says which tiers cut the intervals that others are used in.
    """
    kept = [*zip(slots, tiers, strict=True)]
    found = {
        tuple(sorted(kept, key=lambda each: (each[1].read, each[1].write))),
        tuple(sorted(kept, key=lambda each: (each[1].write, each[1].read))),
        tuple(kept),
    }
    found = sorted(found, key=lambda order: [(n, tier.name) for n, tier in order])
    return [
        (tuple(count for count, _ in order), tuple(tier for _, tier in order))
        for order in found
    ]


def _pairs(slots: Rooms) -> list[tuple[int, int]]:
    """Two tiers out of all, or the only one twice."""
    return list(combinations(range(len(slots)), 2)) or [(0, 0)]


def _segments(task: Task, near: int, far: int) -> Iterator[Decided]:
    """Equal segments, which are told in closed form."""
    stages, room, most = task.stages, task.slots[near], task.slots[far]
    both = dict.fromkeys((task.tiers[near], task.tiers[far]))
    for policy in segment_policies(stages, task.tiers[near], task.tiers[far], most):
        total = policy.totals(stages, room)
        cost = _cost(total, [*both], task.costs.forward)
        if cost < inf:
            yield Decided(total, cost, False, policy, room)


def _split(task: Task, near: int, far: int) -> Iterator[Decided]:
    """Binomial splits for all slots of both tiers, down to a table of these.

    Of 95 random runs of 10 to 10^6 steps over two tiers that were too long for a table
    it was the cheapest in seven, where a far tier was nearly free, by up to 28 %.
    """
    both = tuple(dict.fromkeys((near, far)))
    slots = tuple(task.slots[place] for place in both)
    tiers = tuple(task.tiers[place] for place in both)
    if least_sweeps(task.stages, sum(slots)) > _INTERVALS // 16:
        return
    policy = slots_for_parts(slots, tiers, task.costs.forward)
    found = _weighed(task, slots, tiers, policy, slots, most=_INTERVALS // 2)
    if found is not None:
        yield found


def _rooms(stages: int, slots: Rooms) -> Iterator[Rooms]:
    """The tables that are not too large, the smallest first.

    In a smaller one some tiers are endless. What is best there is best with the slots
    that there are, too, if it takes no more: a disk of 50 slots of which 20 are used
    costs a fiftieth of the table that tells all of them apart.
    """
    order = sorted(range(len(slots)), key=lambda axis: slots[axis])
    room = [ENDLESS] * len(slots)
    for axis in [None, *order]:
        if axis is not None:
            room[axis] = slots[axis]
        rooms = prod(1 if most == ENDLESS else most + 1 for most in room)
        cells = stages * rooms * len(slots)
        if cells <= _CELLS and cells * stages <= EXACT:
            yield tuple(room)


def _cost(total: Totals, tiers: Sequence[Tier], forward: float) -> float:
    """What a run costs beside taping; infinite if no number holds it."""
    counts = total.counts
    try:
        cost = counts.advances * forward
        for tier in tiers:
            used = counts.tiers[tier.name]
            cost += used.stores * tier.write + used.restores * tier.read
    except OverflowError:
        return inf
    return cost


def least_cost(task: Task) -> float:
    """What no schedule is cheaper than, besides taping and sweeping back."""
    slots, tiers = task.slots, task.tiers
    stages, forward = task.stages, task.costs.forward
    try:
        least = forward * optimal_advances(stages, sum(slots))
    except OverflowError:
        least = 0.0  # No bound that is a number.
    least += (stages - 1) * min(tier.read for tier in tiers)
    least += min(tier.write for tier in tiers)
    for known in range(len(slots) - 1, -1, -1):
        # From a tier on they are one, endless, at the least of their costs.
        beyond = tiers[known:]
        write, read = (min(t.write for t in beyond), min(t.read for t in beyond))
        one = Tier(beyond[0].name, 0, write, read)
        room = (*slots[:known], ENDLESS)
        cells = stages * prod(most + 1 for most in slots[:known]) * (known + 1)
        if cells <= _CELLS and cells * stages <= EXACT:
            policy = slots_told_apart(stages, room, (*tiers[:known], one), forward)
            return max(least, kept_table(policy.space, stages).best(stages, room))
    return least

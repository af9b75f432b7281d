"""Slots of a tier that is used only while all tiers before it are empty.

The farthest tiers cut a run into intervals, and what is nearer is used inside of these,
as H-Revolve does: so a table grows with the sum of all slots, where one of every
combination (`TierSlots`) grows with their product. What is longer than a table
reaches has its starts on the farthest tier that has room. Where that tier has slots
enough it is cut into intervals of one length, the one of least cost per stage: the best
schedules become periodic (Aupy and Herrmann 2017).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from retape.schedule._binomial import least_sweeps
from retape.schedule._split import binomial_split
from retape.schedule._tables._kept_table import kept_table
from retape.schedule._tables._space import (
    ENDLESS,
    Kind,
    Rooms,
    Space,
    forward_for_ties,
    kinds_of,
)
from retape.schedule._tables._table_policy import TablePolicy
from retape.schedule._tier import Tier

Nested: TypeAlias = tuple[int, int]
"""The farthest tier that may be used, and its free slots; those before it are free."""

_SIZE = 1_000_000_000
"""The most (stages^2 * slots) of the table of a whole run: two seconds or so."""

_PART = 200_000_000
"""The same of a table for a part of a run, of which there may be several."""

_ROWS = 24
"""Free slots of each tier that the table of a long run tells apart."""


@dataclass(frozen=True, slots=True)
class NestedSlots(Space[Nested]):
    """Slots on several tiers, the last of which may never fill up.

    Attributes:
        slots: The slots of each tier, none without any.
        most: The same that a table tells apart; more count as so many.
        kinds: A state on each tier, those that cost most last.
        forward: What an advance costs.
        period: The stages of an interval of a last tier that never fills up.
    """

    slots: Rooms
    most: Rooms
    kinds: tuple[Kind, ...]
    forward: float
    period: int = field(default=0, compare=False)

    @property
    def whole(self) -> Nested:
        """What is free at the beginning."""
        return len(self.slots) - 1, self.slots[-1]

    def rooms(self) -> Iterator[Nested]:
        for k, most in enumerate(self.most):
            frees = (ENDLESS,) if most == ENDLESS else range(most + 1)
            yield from ((k, free) for free in frees)

    def take(self, room: Nested, kind: Kind) -> Nested | None:
        (k, m), at = room, self.kinds.index(kind)
        free = m if at == k else self.slots[at]
        if at > k or not free:
            return None
        return at, free if free == ENDLESS else free - 1

    def give(self, room: Nested, kind: Kind) -> Nested:
        k, m = room
        return k, m if m == ENDLESS else m + 1

    def free(self, room: Nested) -> int:
        k, m = room
        return m + sum(self.slots[:k])

    @property
    def tabled(self) -> "NestedSlots":
        return replace(self, slots=self.most)

    def seen(self, room: Nested) -> Nested:
        k, m = room
        return k, min(m, self.most[k])

    def split(self, stages: int, room: Nested) -> int:
        if room[1] == ENDLESS:
            return self.period
        return binomial_split(stages, 1 + self.free(room))


class NestedPolicy(NamedTuple):
    """A policy, with what is free at the beginning.

    Attributes:
        policy: The decisions.
        room: What is free.
        is_endless: Whether the last tier is taken to never fill up.
        is_whole: Whether its table tells all stages and all slots apart.
    """

    policy: TablePolicy[Nested]
    room: Nested
    is_endless: bool
    is_whole: bool


def nested_policies(
    stages: int, slots: Rooms, tiers: Sequence[Tier], forward: float, intervals: int
) -> Iterator[NestedPolicy]:
    """Rules for a run that is too long for a table of all rooms.

    Args:
        stages: Of the run.
        slots: Of each tier, none without any.
        tiers: Those that cost most last.
        forward: What an advance costs.
        intervals: The most sweeps that a rule without a period may make.
    """
    endless = _nested(stages, (*slots[:-1], ENDLESS), tiers, forward)
    reach = endless.policy.reach
    if stages <= reach:
        yield endless
    elif (least := -(-stages // slots[-1])) <= reach:
        yield _periodic(endless, least)
    far = slots[-1]
    while far and least_sweeps(stages, sum(slots[:-1]) + far) <= intervals:
        yield _nested(stages, (*slots[:-1], far), tiers, forward)
        far //= 8


def _nested(
    stages: int, slots: Rooms, tiers: Sequence[Tier], forward: float
) -> NestedPolicy:
    endless = slots[-1] == ENDLESS
    near = slots[:-1] if endless else slots
    whole = (sum(near) + endless) * stages**2 <= _SIZE
    most = near if whole else tuple(min(count, _ROWS) for count in near)
    rows = sum(most) + endless
    reach = stages if rows * stages**2 <= _SIZE else int((_PART / rows) ** 0.5)
    most = (*most, ENDLESS) if endless else most
    ties = forward_for_ties(forward, tiers)
    space = NestedSlots(slots, most, kinds_of(tiers), ties)
    policy = TablePolicy(space, max(2, reach))
    whole = stages <= policy.reach and most == slots
    return NestedPolicy(policy, space.whole, endless, whole)


def _periodic(found: NestedPolicy, least: int) -> NestedPolicy:
    """Cut into the intervals of least cost per stage, no shorter than so."""
    space, reach = found.policy.space, found.policy.reach
    assert isinstance(space, NestedSlots)
    table = kept_table(space.tabled, reach)
    period = table.period(least, space.kinds[-1], space.whole)
    return found._replace(policy=TablePolicy(replace(space, period=period), reach))

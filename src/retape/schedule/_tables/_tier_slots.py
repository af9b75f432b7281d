"""The free slots of several tiers, in every combination.

On a tier that never fills up (`ENDLESS` slots) what is free does not change, and a
table is smaller by that dimension. If the schedule found needs no more slots than there
are, it is the cheapest for them, too, since fewer slots never make one cheaper.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeAlias

from retape.schedule._tables._space import (
    ENDLESS,
    Kind,
    Space,
    forward_for_ties,
    kinds_of,
)
from retape.schedule._tables._table_policy import TablePolicy
from retape.schedule._tier import Tier

Rooms: TypeAlias = tuple[int, ...]
"""Free slots on each tier."""

_EXACT = 20_000_000
"""The most (stages^2 * rooms) of a table for a part of a run: half a second or so."""

_ROOMS = 24
"""Free slots that a table for a part tells apart on each tier; more count as so
many."""


@dataclass(frozen=True, slots=True)
class TierSlots(Space[Rooms]):
    """Slots on several tiers.

    Attributes:
        most: The slots of each tier that a table tells apart; more count as so many.
        kinds: A state on each tier, the nearest first.
        forward: What an advance costs.
    """

    most: Rooms
    kinds: tuple[Kind, ...]
    forward: float

    def rooms(self) -> Iterator[Rooms]:
        frees = [(ENDLESS,) if n == ENDLESS else range(n + 1) for n in self.most]
        return product(*frees)

    def take(self, room: Rooms, kind: Kind) -> Rooms | None:
        return self._changed(room, kind, -1) if room[self._axis(kind)] else None

    def give(self, room: Rooms, kind: Kind) -> Rooms:
        return self._changed(room, kind, 1)

    def free(self, room: Rooms) -> int:
        return sum(room)

    def seen(self, room: Rooms) -> Rooms:
        return tuple(map(min, room, self.most))

    def _axis(self, kind: Kind) -> int:
        return self.kinds.index(kind)

    def _changed(self, room: Rooms, kind: Kind, by: int) -> Rooms:
        axis = self._axis(kind)
        if room[axis] == ENDLESS:
            return room
        return (*room[:axis], room[axis] + by, *room[axis + 1 :])


def slots_told_apart(
    stages: int, most: Rooms, tiers: Sequence[Tier], forward: float
) -> TablePolicy[Rooms]:
    """The policy that decides by one table about a whole run."""
    ties = forward_for_ties(forward, tiers)
    return TablePolicy(TierSlots(most, kinds_of(tiers), ties), stages)


def slots_for_parts(
    slots: Rooms, tiers: Sequence[Tier], forward: float
) -> TablePolicy[Rooms]:
    """The policy for runs of any length, whose table decides about parts of them."""
    most = tuple(min(count, _ROOMS) for count in slots)
    reach = max(2, int((_EXACT / prod(count + 1 for count in most)) ** 0.5))
    ties = forward_for_ties(forward, tiers)
    return TablePolicy(TierSlots(most, kinds_of(tiers), ties), reach, grows=True)

"""Decisions over tiers for intervals of any length, and what each of them comes to.

The table of `_room_table` grows with the square of the stages. What is longer than it
reaches is cut at binomial splits for all free slots together, with its starts on the
farthest tier that has room, where what is held longest should be.
"""

from dataclasses import dataclass
from math import prod

from retape.schedule._binomial import known_advances
from retape.schedule._policy_stream import Held, Released
from retape.schedule._room_table import Rooms, RoomTable, room_table
from retape.schedule._split import binomial_split
from retape.schedule._tier import Tier

_EXACT = 20_000_000
"""The most (stages^2 * rooms) of a table: half a second or so."""

_ROOMS = 24
"""Free slots that a table tells apart on each tier; more count as so many."""


@dataclass(frozen=True, slots=True)
class RoomPolicy:
    """Decides about intervals of any length: by a table up to its reach.

    Attributes:
        slots: Of each tier.
        tiers: The tiers, the nearest first.
        forward: What an advance costs.
    """

    slots: Rooms
    tiers: tuple[Tier, ...]
    forward: float

    @property
    def reach(self) -> int:
        """The longest interval that a table decides about."""
        rooms = prod(most + 1 for most in self._shape)
        return max(2, int((_EXACT / rooms) ** 0.5))

    def keep(self, stages: int, room: Rooms) -> Held[Rooms]:
        """On which tier the start of an interval is stored."""
        if stages <= self.reach:
            name = self._table(stages).keep(stages, self._seen(room)).tier
        else:
            places = zip(reversed(self.tiers), reversed(room), strict=True)
            name = next(tier.name for tier, free in places if free)
        return Held(name, False, self.changed(name, room, -1))

    def split(self, stages: int, held: Held[Rooms]) -> int:
        """How far to go on from a state that is kept."""
        if stages > self.reach:
            return binomial_split(stages, 1 + sum(held.room))
        return self._table(stages).split(stages, self._beside(held))

    def after_read(
        self, stages: int, held: Held[Rooms]
    ) -> Held[Rooms] | Released[Rooms]:
        """What becomes of a state just read: it may be stored anew."""
        if stages > self.reach:
            return held
        after = self._table(stages).after_read(stages, self._beside(held))
        if isinstance(after, Released):
            return Released(self.changed(held.tier, held.room, 1))
        return held

    def is_alone(self, held: Held[Rooms]) -> bool:
        """Tell whether no other slot is free."""
        return not any(held.room)

    def price(self, name: str, stages: int, room: Rooms) -> float:
        """What reversing an interval costs whose start lies on a tier: r + X."""
        read = next(tier.read for tier in self.tiers if tier.name == name)
        if stages <= 1:
            return read if stages else 0.0
        if stages > self.reach:
            return read + self.forward * known_advances(stages, 1 + sum(room))
        table = self._table(stages)
        seen = self._beside(Held(name, False, room)).room
        kept = table.stored[name, seen][stages]
        moved = table.value[table.given(name, seen)][stages]
        return read + float(min(kept, moved))

    def changed(self, name: str, room: Rooms, by: int) -> Rooms:
        """The free slots after some are given back, or taken (`by` below 0)."""
        return tuple(
            free + by * (tier.name == name)
            for tier, free in zip(self.tiers, room, strict=True)
        )

    @property
    def _shape(self) -> Rooms:
        return tuple(min(most, _ROOMS) for most in self.slots)

    def _seen(self, room: Rooms) -> Rooms:
        """The room as the table knows it: no larger."""
        return tuple(map(min, room, self._shape))

    def _beside(self, held: Held[Rooms]) -> Held[Rooms]:
        """What is held as the table knows it: beside a slot of its tier."""
        most = self.changed(held.tier, self._shape, -1)
        return Held(held.tier, False, tuple(map(min, held.room, most)))

    def _table(self, stages: int) -> RoomTable:
        """The table of a power of two: few are made while a run goes on."""
        size = max(64, 1 << (stages - 1).bit_length())
        size = min(size, self.reach)
        return room_table(size, self._shape, self.tiers, self.forward)

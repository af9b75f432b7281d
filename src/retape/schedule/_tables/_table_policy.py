"""Decisions for intervals of any length: by a table, and beyond it by the space's rule.

A table grows with the square of the stages. What is longer than it reaches is cut at
binomial splits, or as the space says, with its start where what is held longest should
be.

On a tier that never fills up (`ENDLESS` slots) what is free does not change, and a
table is smaller by that dimension. If the schedule found needs no more slots than there
are, it is the cheapest for them, too, since fewer slots never make one cheaper.
"""

from collections.abc import Hashable, Sequence
from functools import lru_cache
from math import prod
from typing import Generic, TypeVar

from retape.schedule._binomial import optimal_advances
from retape.schedule._policy_stream import Held, Released
from retape.schedule._tables._kept_table import KeptTable, kept_table
from retape.schedule._tables._space import (
    Kind,
    MixedRoom,
    Rooms,
    Space,
    TierSlots,
    forward_for_ties,
    kinds_of,
)
from retape.schedule._tier import Tier

R = TypeVar("R", bound=Hashable)


class TablePolicy(Generic[R]):
    """The `Policy` of a space.

    Args:
        space: What may be kept.
        reach: The longest interval that a table decides about.
        grows: Whether tables are made as they are needed, each of a power of two: few
            while a run goes on whose length is not known.
    """

    def __init__(self, space: Space[R], reach: int, *, grows: bool = False) -> None:
        self.space, self.reach, self.grows = space, reach, grows
        self._tabled = space.tabled
        self._tables: dict[int, KeptTable[R]] = {}
        # The same few are asked for again and again: half of a stream's time.
        self._kept = lru_cache(maxsize=4096)(self._keep)
        self._read = lru_cache(maxsize=4096)(self._after_read)
        self._alone = lru_cache(maxsize=4096)(self._is_alone)

    def keep(self, lo: int, hi: int, room: R) -> Held[R]:
        """What the table keeps, or the space's rule."""
        return self._kept(hi - lo, room)

    def after_read(self, lo: int, hi: int, held: Held[R]) -> Held[R] | Released[R]:
        """The state stays, or gives its place up where the table says so."""
        return self._read(hi - lo, held.tier, held.room)

    def is_alone(self, held: Held[R]) -> bool:
        """Tell whether nothing else has a place."""
        return self._alone(held.tier, held.room)

    def _keep(self, stages: int, room: R) -> Held[R]:
        space = self.space
        if stages > self.reach:
            kind = space.keep(stages, room)
        else:
            kind = self._table(stages).keep(stages, space.seen(room))
        beside = space.take(room, kind)
        assert beside is not None
        if kind.tape:
            return Held(kind.tier, True, beside)
        return self._held(stages, kind, beside)

    def _held(self, stages: int, kind: Kind, room: R) -> Held[R]:
        if stages > self.reach:
            split = self.space.split(stages, room)
        else:
            beside = self._beside(kind, room)
            split = self._table(stages).split(stages, kind, beside)
        return Held(kind.tier, False, room, split)

    def _after_read(self, stages: int, tier: str, room: R) -> Held[R] | Released[R]:
        kind = self.space.of(tier)
        if stages <= self.reach:
            beside = self._beside(kind, room)
            if self._table(stages).gives_back(stages, kind, beside):
                return Released(self.space.give(room, kind))
        return self._held(stages, kind, room)

    def _is_alone(self, tier: str, room: R) -> bool:
        return self.space.is_alone(room, self.space.of(tier))

    def price(self, tier: str, stages: int, room: R) -> float:
        """What reversing an interval costs whose start lies on a tier: r + X."""
        kind = self.space.of(tier)
        if stages <= 1:
            return kind.read if stages else 0.0
        if stages > self.reach:
            most = 1 + self.space.free(room)
            return kind.read + self.space.forward * optimal_advances(stages, most)
        beside = self._beside(kind, room)
        return kind.read + self._table(stages).again(stages, kind, beside)

    def _beside(self, kind: Kind, room: R) -> R:
        """What is free beside a state, as the table knows it."""
        found = self.space.take(self.space.seen(self.space.give(room, kind)), kind)
        assert found is not None
        return found

    def _table(self, stages: int) -> KeptTable[R]:
        size = self.reach
        if self.grows:
            size = min(size, max(64, 1 << (stages - 1).bit_length()))
        if size not in self._tables:
            self._tables[size] = kept_table(self._tabled, size)
        return self._tables[size]


# For tiers --------------------------------------------------------------------

_TIERS = 20_000_000
"""The most (stages^2 * rooms) of a table for a part of a run: half a second or so."""

_SLOTS = 24
"""Free slots that a table for a part tells apart on each tier; more count as so
many."""


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
    most = tuple(min(count, _SLOTS) for count in slots)
    reach = max(2, int((_TIERS / prod(count + 1 for count in most)) ** 0.5))
    ties = forward_for_ties(forward, tiers)
    return TablePolicy(TierSlots(most, kinds_of(tiers), ties), reach, grows=True)


# For states and tapes ---------------------------------------------------------

_MIXED = 24_000_000
"""The most (stages^2 * rooms) of a table: 0.1 s for 300 stages and 250 rooms (a
processor of a server, 2026-11-26)."""

_ROOMS = 20_000
"""The most different rooms of a table: 0.4 s, for 30 stages."""


@lru_cache(maxsize=8)
def mixed_policy(stages: int, room: int, state: int, tape: int) -> TablePolicy[int]:
    """The policy for up to so many stages; with too many rooms it has no table."""
    space, reach = MixedRoom(room, state, tape), 1
    if min(room, (room // state + 1) * (room // tape + 1)) <= _ROOMS:
        rooms, reach = len(list(space.rooms())), stages
        while reach > 1 and reach**2 * rooms > _MIXED:
            reach = reach * 7 // 8
    return TablePolicy(space, reach)

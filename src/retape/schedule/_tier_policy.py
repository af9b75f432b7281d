"""Decisions over two tiers for intervals of any length: a table, and beyond it a rule.

The table of `_tier_table` grows with the square of the stages. What is longer than it
reaches is cut at binomial splits for all free slots together, with its starts on disk,
where what is held longest should be.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from retape._errors import PlanError
from retape.schedule._binomial import least_sweeps, optimal_advances
from retape.schedule._policy_counts import Totals, policy_counts
from retape.schedule._policy_stream import Held
from retape.schedule._split import binomial_split
from retape.schedule._tier_table import (
    HAS_NUMPY,
    Room,
    Table,
    TierCosts,
    TierName,
    tier_table,
    transfer_cost,
)

_EXACT = 20_000_000 if HAS_NUMPY else 400_000
"""The most (stages^2 * rooms) of a table: half a second or so."""

_ROOMS = 24
"""Free slots that a table tells apart on each tier; more count as so many."""

_INTERVALS = 20_000
"""The most different intervals that are counted: half a second or so."""


@dataclass(frozen=True, slots=True)
class TierPolicy:
    """Decides about intervals of any length: by a table up to its reach.

    Longer ones are cut at binomial splits, their starts on disk while there is room.

    Attributes:
        memory: Slots in memory.
        disk: Slots on disk.
        costs: What things cost.
    """

    memory: int
    disk: int
    costs: TierCosts

    @property
    def reach(self) -> int:
        """The longest interval that a table decides about."""
        rooms = (min(self.memory, _ROOMS) + 1) * (min(self.disk, _ROOMS) + 1)
        return max(2, int((_EXACT / rooms) ** 0.5))

    def keep(self, stages: int, room: Room) -> Held[Room]:
        """On which tier the start of an interval is stored."""
        if stages <= self.reach:
            table = self._table(stages)
            tier = table.keep(stages, self._seen(room, "")).tier
        else:
            tier = "disk" if room[1] else "memory"
        return Held(tier, False, Table.without_slot(tier, *room))

    def split(self, stages: int, held: Held[Room]) -> int:
        """How far to go on from a state that is kept."""
        if stages > self.reach:
            return binomial_split(stages, 1 + sum(held.room))
        seen = Held(held.tier, False, self._seen(held.room, held.tier))
        return self._table(stages).split(stages, seen)

    def gives_back(self, stages: int, held: Held[Room]) -> Room | None:
        """The room once a state just read gives up its slot; `None` if it stays."""
        if stages > self.reach:
            return None
        seen = Held(held.tier, False, self._seen(held.room, held.tier))
        back = self._table(stages).gives_back(stages, seen)
        return None if back is None else Table.with_slot(held.tier, *held.room)

    def price(self, tier: TierName, stages: int, room: Room) -> float:
        """What reversing an interval costs whose start lies on a tier: r + X."""
        read = self.costs.read(tier)
        if stages <= 1:
            return read if stages else 0.0
        if stages > self.reach:
            advances = _advances(stages, 1 + sum(room))
            return read + self.costs.forward * advances
        table, seen = self._table(stages), self._seen(room, tier)
        kept = table.stored[tier, *seen][stages]
        moved = table.value[Table.with_slot(tier, *seen)][stages]
        return read + float(min(kept, moved))

    def _seen(self, room: Room, tier: str) -> Room:
        """The room as the table knows it: beside a slot of the tier, and no larger."""
        most = min(self.memory, _ROOMS), min(self.disk, _ROOMS)
        m = min(room[0], most[0] - (tier == "memory"))
        return m, min(room[1], most[1] - (tier == "disk"))

    def _table(self, stages: int) -> Table:
        """The table of a power of two: few are made while a run goes on."""
        size = max(64, 1 << (stages - 1).bit_length())
        rooms = min(self.memory, _ROOMS), min(self.disk, _ROOMS)
        return tier_table(min(size, self.reach), *rooms, self.costs)


@lru_cache(maxsize=8)
def policy_totals(stages: int, policy: TierPolicy) -> tuple[float, Totals] | None:
    """The cost of a policy and its counts; `None` if they would take long to tell."""
    room = policy.memory, policy.disk
    if sum(room) == 0 or least_sweeps(stages, sum(room)) > _INTERVALS // 8:
        return None
    try:
        total = policy_counts(policy, stages, 1, room, most=_INTERVALS)
    except PlanError:
        return None
    advances = total.counts.advances * policy.costs.forward
    return advances + transfer_cost(total, policy.costs), total


@lru_cache(maxsize=1 << 16)
def _advances(stages: int, snapshots: int) -> int:
    """A(L, q), kept: a placement asks for few different ones, again and again."""
    return optimal_advances(stages, snapshots)

"""Decisions over many tiers for intervals of any length: a table, and beyond it a rule.

What is longer than the table of `_nested_table` reaches has its starts on the farthest
tier that has room. Where that tier has slots enough it is cut into intervals of one
length, the one of least cost per stage: the best schedules become periodic (Aupy and
Herrmann 2017). Otherwise it is cut at binomial splits for all free slots together.
"""

from dataclasses import dataclass

from retape.schedule._nested_table import Nested, NestedTable, nested_table
from retape.schedule._policy_stream import Held, Released
from retape.schedule._room_table import ENDLESS
from retape.schedule._split import binomial_split
from retape.schedule._tier import Tier

_SIZE = 1_000_000_000
"""The most (stages^2 * slots) of the table of a whole run: two seconds or so."""

_PART = 200_000_000
"""The same of a table for a part of a run, of which there may be several."""

_ROWS = 24
"""Free slots of each tier that the table of a long run tells apart."""


@dataclass(frozen=True, slots=True)
class NestedPolicy:
    """Decides about intervals of any length.

    Attributes:
        slots: The slots of each tier, none without any.
        tiers: The tiers, those that cost most last.
        forward: What an advance costs.
        stages: The stages of the run.
        endless: Whether the last tier is taken to never fill up: its intervals are so
            long that it does not.
    """

    slots: tuple[int, ...]
    tiers: tuple[Tier, ...]
    forward: float
    stages: int
    endless: bool = False

    @property
    def room(self) -> Nested:
        """What is free at the beginning."""
        return len(self.slots) - 1, ENDLESS if self.endless else self.slots[-1]

    @property
    def rows(self) -> tuple[int, ...]:
        """The free slots of each tier that the table tells apart."""
        near = self.slots[:-1] if self.endless else self.slots
        whole = (sum(near) + self.endless) * self.stages**2 <= _SIZE
        rows = near if whole else tuple(min(count, _ROWS) for count in near)
        return (*rows, ENDLESS) if self.endless else rows

    @property
    def reach(self) -> int:
        """The longest interval that the table decides about."""
        slots = sum(map(abs, self.rows))
        if slots * self.stages**2 <= _SIZE:
            return max(2, self.stages)
        return max(2, int((_PART / slots) ** 0.5))

    @property
    def is_whole(self) -> bool:
        """Tell whether the table tells all stages and all slots apart."""
        near = len(self.slots) - self.endless
        return self.stages <= self.reach and self.rows[:near] == self.slots[:near]

    @property
    def period(self) -> int:
        """The stages of an interval of the last tier; 0 if its slots are too few."""
        least = -(-self.stages // self.slots[-1])
        if least > self.reach:
            return 0
        return self._table().period(least, self.forward)

    def keep(self, stages: int, room: Nested) -> Held[Nested]:
        """On which tier the start of an interval is stored."""
        k, m = room
        if stages > self.reach:
            while m == 0:
                k -= 1
                m = self.slots[k]
            return Held(self.tiers[k].name, False, (k, _without(m)))
        held = self._table().keep(stages, (k, min(m, self.rows[k])))
        at = held.room[0]
        free = m if at == k else self.slots[at]
        return Held(held.tier, False, (at, _without(free)))

    def split(self, stages: int, held: Held[Nested]) -> int:
        """How far to go on from a state that is kept."""
        if stages <= self.reach:
            return self._table().split(stages, self._seen(held))
        k, m = held.room
        if m == ENDLESS:
            return self.period
        return binomial_split(stages, 1 + m + sum(self.slots[:k]))

    def after_read(
        self, stages: int, held: Held[Nested]
    ) -> Held[Nested] | Released[Nested]:
        """What becomes of a state just read: it may be stored anew."""
        if stages > self.reach:
            return held
        if not self._table().gives_back(stages, self._seen(held)):
            return held
        k, m = held.room
        return Released((k, m if m == ENDLESS else m + 1))

    def is_alone(self, held: Held[Nested]) -> bool:
        """Tell whether no other slot is free."""
        k, m = held.room
        return m == 0 and not any(self.slots[:k])

    def _seen(self, held: Held[Nested]) -> Held[Nested]:
        """What is held as the table knows it: beside a slot of its tier."""
        k, m = held.room
        return Held(held.tier, False, (k, min(m, max(self.rows[k] - 1, ENDLESS))))

    def _table(self) -> NestedTable:
        return nested_table(self.reach, self.rows, self.tiers, self.forward)


def _without(free: int) -> int:
    return free if free == ENDLESS else free - 1

"""The dynamic programme over two tiers, and the costs that it weighs.

`_room_table` has the recurrence, for any number of tiers. The cost of taping and of
sweeping back is the same for all schedules, length * (tape + backward), and is added at
the end.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias

from retape.schedule._policy_counts import Totals
from retape.schedule._room_table import (
    ENDLESS,
    HAS_NUMPY,
    Rate,
    RoomArrays,
    RoomTable,
    forward_for_ties,
)
from retape.schedule._tier import cost_of

TierName: TypeAlias = Literal["memory", "disk"]

Room: TypeAlias = tuple[int, int]
"""Free slots in memory and on disk."""


@dataclass(frozen=True, slots=True)
class TierCosts:
    """Costs of a step and of transfers, in any one unit of time.

    Attributes:
        forward: Advancing one stage.
        tape: Running one stage with a tape.
        backward: Sweeping one stage back.
        memory_write: Writing a snapshot to memory.
        memory_read: Reading it.
        disk_write: Writing a snapshot to disk.
        disk_read: Reading it.
    """

    forward: float = 1.0
    tape: float = 1.0
    backward: float = 1.0
    memory_write: float = 0.0
    memory_read: float = 0.0
    disk_write: float = 5.0
    disk_read: float = 5.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            object.__setattr__(self, name, cost_of(name, getattr(self, name)))

    @property
    def rates(self) -> tuple[Rate, Rate]:
        """The tiers, and what transfers cost there."""
        memory = Rate("memory", self.memory_write, self.memory_read)
        return memory, Rate("disk", self.disk_write, self.disk_read)

    def write(self, tier: TierName) -> float:
        """Writing a snapshot to a tier."""
        return self.memory_write if tier == "memory" else self.disk_write

    def read(self, tier: TierName) -> float:
        """Reading a snapshot from a tier."""
        return self.memory_read if tier == "memory" else self.disk_read


class Table(RoomTable):
    """The table of both tiers, for all sizes up to one."""

    def __init__(self, stages: int, memory: int, disk: int, costs: TierCosts) -> None:
        super().__init__(stages, (memory, disk), costs.rates, costs.forward)

    @staticmethod
    def with_slot(tier: str, m: int, d: int) -> tuple[int, int]:
        """The free slots after one is given back."""
        return (m + 1, d) if tier == "memory" else (m, d if d == ENDLESS else d + 1)

    @staticmethod
    def without_slot(tier: str, m: int, d: int) -> tuple[int, int]:
        """The free slots after one is taken."""
        return (m - 1, d) if tier == "memory" else (m, d if d == ENDLESS else d - 1)


class ArrayTable(Table, RoomArrays):
    """The same, made by NumPy."""


@lru_cache(maxsize=8)
def tier_table(stages: int, memory: int, disk: int, costs: TierCosts) -> Table:
    kind = ArrayTable if HAS_NUMPY else Table
    forward = forward_for_ties(costs.forward, costs.rates)
    return kind(stages, memory, disk, replace(costs, forward=forward))


def transfer_cost(total: Totals, costs: TierCosts) -> float:
    """What a policy's writes and reads cost."""
    counts = total.counts
    cost = total.disk_stores * costs.disk_write
    cost += total.disk_restores * costs.disk_read
    cost += (counts.stores - total.disk_stores) * costs.memory_write
    return cost + (counts.restores - total.disk_restores) * costs.memory_read

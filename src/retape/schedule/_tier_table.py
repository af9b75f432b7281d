"""The dynamic programme over two tiers, and the costs that it weighs.

A snapshot is kept until the stage that it begins has been reversed or is the next to
be; when it is read from disk for another round it may move to memory. Among these
(persistent) schedules the dynamic programme finds the cheapest. With f, w and r the
costs of an advance, a write and a read, m and d the free slots, and L stages:

    V(L, m, d)        the start is not stored yet:  0 if L = 1, else the least of
                      w_memory + W(memory, L, m-1, d),  w_disk + W(disk, L, m, d-1)
    W(tier, L, m, d)  the start is stored on `tier` and in hand:
                      min over i of  i*f + V(L-i, m, d) + r_tier + X(tier, i, m, d)
    X(tier, i, m, d)  the same after a read: 0 if i = 1, else the least of
                      W(tier, i, m, d)  and  V(i, m, d) with the slot given back

On a disk that never fills up (`ENDLESS` slots) d does not change, and the table is
smaller by that dimension. If the schedule found needs no more slots than there are, it
is the cheapest for them, too, since fewer slots never make one cheaper.

The cost of taping and of sweeping back is the same for all schedules, length *
(tape + backward), and is added at the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from math import inf
from typing import Any, Literal, TypeAlias

from retape._errors import PlanError
from retape.schedule._policy_stream import Held, Totals

TierName: TypeAlias = Literal["memory", "disk"]

Room: TypeAlias = tuple[int, int]
"""Free slots in memory and on disk."""

ENDLESS = -1
"""The free slots of a disk that never fills up."""


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
            value: object = getattr(self, name)
            try:
                cost = -1.0 if isinstance(value, str) else float(value)  # pyright: ignore
            except (TypeError, ValueError):
                cost = -1.0
            if not cost >= 0 or cost == inf:
                raise PlanError(
                    f"`{name}={value!r}` cannot be a cost. Pass a number that is not "
                    "negative."
                )
            object.__setattr__(self, name, cost)

    def write(self, tier: TierName) -> float:
        """Writing a snapshot to a tier."""
        return self.memory_write if tier == "memory" else self.disk_write

    def read(self, tier: TierName) -> float:
        """Reading a snapshot from a tier."""
        return self.memory_read if tier == "memory" else self.disk_read


class Table:
    """The values V and W and the splits of W, for all sizes up to one."""

    def __init__(self, stages: int, memory: int, disk: int, costs: TierCosts) -> None:
        self.costs = costs
        self.shape = memory, disk
        self.disks = (ENDLESS,) if disk == ENDLESS else tuple(range(disk + 1))
        self.value: dict[tuple[int, int], Any] = {}
        self.stored: dict[tuple[str, int, int], Any] = {}
        self.splits: dict[tuple[str, int, int], Any] = {}
        self._make(stages)

    def _make(self, stages: int) -> None:
        for m in range(self.shape[0] + 1):
            for d in self.disks:
                self.value[m, d] = [0.0, 0.0]
                for tier in ("memory", "disk"):
                    self.stored[tier, m, d] = [0.0, 0.0]
                    self.splits[tier, m, d] = [0, 0]
        for length in range(2, stages + 1):
            self._extend(length)

    def best(self, length: int, m: int, d: int) -> float:
        """V."""
        return float(self.value[m, d][length])

    def keep(self, stages: int, room: Room) -> Held[Room]:
        """On which tier V stores its start."""
        m, d = room
        tier = min(self._tiers(m, d), key=lambda tier: self._on(tier, stages, m, d))
        return Held(tier, False, self.without_slot(tier, m, d))

    def split(self, stages: int, held: Held[Room]) -> int:
        """Where W goes on."""
        return int(self.splits[held.tier, *held.room][stages])

    def gives_back(self, stages: int, held: Held[Room]) -> Room | None:
        """The room if X gives the slot back and stores the start anew."""
        back = self.with_slot(held.tier, *held.room)
        kept = self.stored[held.tier, *held.room][stages]
        return back if self.value[back][stages] < kept else None

    def _extend(self, length: int) -> None:
        for m, d in self.value:
            for tier in ("memory", "disk"):
                # One slot is the start's: it is not among the free ones.
                if self.with_slot(tier, m, d) in self.value:
                    cost, split = self._least(tier, length, m, d)
                    self.stored[tier, m, d].append(cost)
                    self.splits[tier, m, d].append(split)
        for (m, d), row in self.value.items():
            choices = [self._on(tier, length, m, d) for tier in self._tiers(m, d)]
            row.append(min(choices, default=inf))

    def _least(self, tier: TierName, length: int, m: int, d: int) -> tuple[float, int]:
        right = self.value[m, d]
        kept = self.stored[tier, m, d]
        moved = self.value[self.with_slot(tier, m, d)]
        forward, read = self.costs.forward, self.costs.read(tier)
        return min(
            (i * forward + right[length - i] + read + min(kept[i], moved[i]), i)
            for i in range(1, length)
        )

    def _on(self, tier: TierName, length: int, m: int, d: int) -> float:
        left = self.without_slot(tier, m, d)
        return float(self.costs.write(tier) + self.stored[tier, *left][length])

    @staticmethod
    def _tiers(m: int, d: int) -> list[TierName]:
        return [*(["memory"] if m else []), *(["disk"] if d else [])]

    @staticmethod
    def with_slot(tier: str, m: int, d: int) -> tuple[int, int]:
        """The free slots after one is given back."""
        return (m + 1, d) if tier == "memory" else (m, d if d == ENDLESS else d + 1)

    @staticmethod
    def without_slot(tier: str, m: int, d: int) -> tuple[int, int]:
        """The free slots after one is taken."""
        return (m - 1, d) if tier == "memory" else (m, d if d == ENDLESS else d - 1)


class ArrayTable(Table):
    """The same, made by NumPy for all rooms at once: some thirty times faster."""

    def _make(self, stages: int) -> None:
        import numpy as np

        shape = self.shape[0] + 1, len(self.disks), stages + 1
        value = np.zeros(shape)
        # Of each tier: W, its split, and i * f + r + X(i), all beside a slot of it.
        parts = [self._part(np, value, tier) for tier in ("memory", "disk")]
        for length in range(2, stages + 1):
            least = np.full(shape[:2], inf)
            for write, right, kept, splits, left, holder, _ in parts:
                sums = left[:, :, 1:length] + right[:, :, length - 1 : 0 : -1]
                if not sums.size:
                    continue
                where = sums.argmin(axis=2)[:, :, None]
                splits[:, :, length] = 1 + where[:, :, 0]
                kept[:, :, length] = np.take_along_axis(sums, where, 2)[:, :, 0]
                on = least[holder]
                np.minimum(on, kept[:, :, length] + write, out=on)
            value[:, :, length] = least
            for _, _, kept, _, left, holder, read in parts:
                moved = value[holder][:, :, length]
                again = np.minimum(kept[:, :, length], moved)
                left[:, :, length] = length * self.costs.forward + read + again
        self._name(value, parts)

    def _part(self, np: Any, value: Any, tier: TierName) -> Sequence[Any]:
        """What is kept for a tier: views on the rooms beside one of its slots."""
        endless = tier == "disk" and self.disks == (ENDLESS,)
        beside, holder = [slice(None), slice(None)], [slice(None), slice(None)]
        axis = 0 if tier == "memory" else 1
        if not endless:
            # A slot of the tier is taken, and given back.
            beside[axis], holder[axis] = slice(None, -1), slice(1, None)
        right = value[tuple(beside)]
        kept, left = np.zeros(right.shape), np.zeros(right.shape)
        splits = np.zeros(right.shape, dtype=np.int32)
        write, read = self.costs.write(tier), self.costs.read(tier)
        if right.shape[2] > 1:
            left[:, :, 1] = self.costs.forward + read
        return write, right, kept, splits, left, tuple(holder), read

    def _name(self, value: Any, parts: Sequence[Sequence[Any]]) -> None:
        for m in range(self.shape[0] + 1):
            for place, d in enumerate(self.disks):
                self.value[m, d] = value[m, place]
                for tier, part in zip(("memory", "disk"), parts, strict=True):
                    if m < part[2].shape[0] and place < part[2].shape[1]:
                        self.stored[tier, m, d] = part[2][m, place]
                        self.splits[tier, m, d] = part[3][m, place]


HAS_NUMPY = find_spec("numpy") is not None


_NEARLY_FREE = 1e-9
"""An advance that costs nothing, in the least transfer: of equal schedules the one with
the fewest advances is taken, which would be as good as any."""


@lru_cache(maxsize=8)
def tier_table(stages: int, memory: int, disk: int, costs: TierCosts) -> Table:
    kind = ArrayTable if HAS_NUMPY else Table
    if costs.forward == 0:
        transfers = [costs.memory_write, costs.memory_read]
        transfers += [costs.disk_write, costs.disk_read]
        least = min((cost for cost in transfers if cost > 0), default=1.0)
        costs = replace(costs, forward=_NEARLY_FREE * least)
    return kind(stages, memory, disk, costs)


def transfer_cost(total: Totals, costs: TierCosts) -> float:
    """What a policy's writes and reads cost."""
    counts = total.counts
    cost = total.disk_stores * costs.disk_write
    cost += total.disk_restores * costs.disk_read
    cost += (counts.stores - total.disk_stores) * costs.memory_write
    return cost + (counts.restores - total.disk_restores) * costs.memory_read

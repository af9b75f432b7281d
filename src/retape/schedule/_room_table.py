"""The dynamic programme over any number of tiers.

A snapshot is kept until the stage that it begins has been reversed or is the next to
be; when it is read for another round it may move to another tier. Among these
(persistent) schedules the dynamic programme finds the cheapest. With f the cost of an
advance, w_k and r_k those of a write and a read on tier k, m the free slots of all
tiers, e_k one slot on tier k, and L stages:

    V(L, m)       the start is not stored yet:  0 if L = 1, else the least over k of
                  w_k + W(k, L, m - e_k)
    W(k, L, m)    the start is stored on tier k and in hand:
                  min over i of  i*f + V(L-i, m) + r_k + X(k, i, m)
    X(k, i, m)    the same after a read: 0 if i = 1, else the least of
                  W(k, i, m)  and  V(i, m + e_k) with the slot given back

On a tier that never fills up (`ENDLESS` slots) m_k does not change, and the table is
smaller by that dimension. If the schedule found needs no more slots than there are, it
is the cheapest for them, too, since fewer slots never make one cheaper.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import inf
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from retape.schedule._policy_stream import Held, Released
from retape.schedule._tier import Tier

Rooms: TypeAlias = tuple[int, ...]
"""Free slots on each tier."""

Costs: TypeAlias = NDArray[np.float64]

ENDLESS = -1
"""The free slots of a tier that never fills up."""

_NEARLY_FREE = 1e-9
"""An advance that costs nothing, in the least transfer: of equal schedules the one with
the fewest advances is taken, which would be as good as any."""


class _Part(NamedTuple):
    """What is kept for a tier: views on the rooms beside one of its slots.

    Attributes:
        tier: The tier.
        right: V.
        kept: W.
        splits: The split of W.
        left: i*f + r + X(i).
        holder: Where the rooms with the slot given back are.
    """

    tier: Tier
    right: Costs
    kept: Costs
    splits: NDArray[np.int32]
    left: Costs
    holder: tuple[slice, ...]


class RoomTable:
    """The values V and W and the splits of W, for all lengths and rooms up to one.

    Args:
        stages: The most stages.
        shape: The most slots of each tier.
        tiers: The tiers; what they hold is told by `shape`.
        forward: What an advance costs.
    """

    def __init__(
        self, stages: int, shape: Rooms, tiers: tuple[Tier, ...], forward: float
    ) -> None:
        self.shape, self.tiers, self.forward = shape, tiers, forward
        self.axes = {tier.name: axis for axis, tier in enumerate(tiers)}
        value = np.zeros((*(len(free_of(most)) for most in shape), stages + 1))
        parts = [self._part(value, axis) for axis in range(len(tiers))]
        with np.errstate(over="ignore"):  # Costs of 10^308 are told by their sum.
            self._fill(stages, value, parts)
        self.value: dict[Rooms, Costs] = {}
        self.stored: dict[tuple[str, Rooms], Costs] = {}
        self.splits: dict[tuple[str, Rooms], NDArray[np.int32]] = {}
        self._name(value, parts)

    def best(self, length: int, room: Rooms) -> float:
        """V."""
        return float(self.value[room][length])

    def keep(self, stages: int, room: Rooms) -> Held[Rooms]:
        """On which tier V stores its start."""
        cost: dict[str, Any] = {}
        for tier, free in zip(self.tiers, room, strict=True):
            if free:
                left = self.taken(tier.name, room)
                cost[tier.name] = tier.write + self.stored[tier.name, left][stages]
        name = min(cost, key=cost.__getitem__)
        return Held(name, False, self.taken(name, room))

    def split(self, stages: int, held: Held[Rooms]) -> int:
        """Where W goes on."""
        return int(self.splits[held.tier, held.room][stages])

    def after_read(
        self, stages: int, held: Held[Rooms]
    ) -> Held[Rooms] | Released[Rooms]:
        """The choice of X: the slot is given back where the start is stored anew."""
        back = self.given(held.tier, held.room)
        kept = self.stored[held.tier, held.room][stages]
        return Released(back) if self.value[back][stages] < kept else held

    def is_alone(self, held: Held[Rooms]) -> bool:
        """Tell whether no other slot is free."""
        return not any(held.room)

    def taken(self, name: str, room: Rooms) -> Rooms:
        """The free slots after one is taken."""
        return self._changed(name, room, -1)

    def given(self, name: str, room: Rooms) -> Rooms:
        """The free slots after one is given back."""
        return self._changed(name, room, 1)

    def _changed(self, name: str, room: Rooms, by: int) -> Rooms:
        axis = self.axes[name]
        if room[axis] == ENDLESS:
            return room
        return (*room[:axis], room[axis] + by, *room[axis + 1 :])

    def _fill(self, stages: int, value: Costs, parts: Sequence[_Part]) -> None:
        for length in range(2, stages + 1):
            least = np.full(value.shape[:-1], inf)
            for part in parts:
                sums = part.left[..., 1:length] + part.right[..., length - 1 : 0 : -1]
                if not sums.size:
                    continue
                where = sums.argmin(axis=-1)
                part.splits[..., length] = 1 + where
                rows = sums.reshape(-1, length - 1), where.ravel()
                least_sum = rows[0][np.arange(where.size), rows[1]]
                part.kept[..., length] = least_sum.reshape(where.shape)
                on = least[part.holder]
                np.minimum(on, part.kept[..., length] + part.tier.write, out=on)
            value[..., length] = least
            for part in parts:
                given = value[part.holder][..., length]
                again = np.minimum(part.kept[..., length], given)
                part.left[..., length] = length * self.forward + part.tier.read + again

    def _part(self, value: Costs, axis: int) -> _Part:
        beside = [slice(None)] * len(self.shape)
        holder = list(beside)
        if self.shape[axis] != ENDLESS:
            # A slot of the tier is taken, and given back.
            beside[axis], holder[axis] = slice(None, -1), slice(1, None)
        right, tier = value[tuple(beside)], self.tiers[axis]
        kept, left = np.zeros(right.shape), np.zeros(right.shape)
        splits = np.zeros(right.shape, dtype=np.int32)
        if right.shape[-1] > 1:
            left[..., 1] = self.forward + tier.read
        return _Part(tier, right, kept, splits, left, tuple(holder))

    def _name(self, value: Costs, parts: Sequence[_Part]) -> None:
        frees = list(map(free_of, self.shape))
        for place in product(*(range(len(free)) for free in frees)):
            room = tuple(free[at] for free, at in zip(frees, place, strict=True))
            self.value[room] = value[place]
            for part in parts:
                # One slot is the start's: it is not among the free ones.
                if all(map(int.__lt__, place, part.kept.shape)):
                    self.stored[part.tier.name, room] = part.kept[place]
                    self.splits[part.tier.name, room] = part.splits[place]


def free_of(most: int) -> Sequence[int]:
    """The numbers of free slots that are told apart, of at most so many."""
    return (ENDLESS,) if most == ENDLESS else range(most + 1)


def forward_for_ties(forward: float, tiers: Sequence[Tier]) -> float:
    """The cost of an advance for a table, which is never quite nothing."""
    if forward:
        return forward
    transfers = [cost for tier in tiers for cost in (tier.write, tier.read) if cost > 0]
    return _NEARLY_FREE * min(transfers, default=1.0)


@lru_cache(maxsize=8)
def room_table(
    stages: int, shape: Rooms, tiers: tuple[Tier, ...], forward: float
) -> RoomTable:
    """A table, kept."""
    return RoomTable(stages, shape, tiers, forward_for_ties(forward, tiers))

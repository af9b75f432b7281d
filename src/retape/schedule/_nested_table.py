"""A dynamic programme over many tiers whose size grows with the sum of their slots.

`_room_table` tells apart every combination of free slots, so it grows with their
product. Here a tier is used only while all tiers before it are empty: the farthest ones
cut a run into intervals, and what is nearer is used inside of these, as H-Revolve does.
With tiers in the order of what they cost, c_k slots on tier k, and m of them free:

    V(k, m, L)    the start is not stored yet, no slot before tier k is in use, and none
                  beyond it may be used: 0 if L = 1, else the least of
                  V(k-1, c_{k-1}, L)  and, if m > 0,  w_k + W(k, m-1, L)
    W(k, m, L)    the start is stored on tier k and in hand:
                  min over i of  i*f + V(k, m, L-i) + r_k + X(k, m, i)
    X(k, m, i)    the same after a read: 0 if i = 1, else the least of
                  W(k, m, i)  and  V(k, m+1, i) with the slot given back

A tier of more slots than it has rows here counts as if it had so many.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from retape.schedule._policy_stream import Held
from retape.schedule._room_table import ENDLESS, Costs, forward_for_ties
from retape.schedule._tier import Tier

Nested: TypeAlias = tuple[int, int]
"""The farthest tier that may be used, and its free slots; those before it are free."""


class NestedTable:
    """The values V and W and the splits of W.

    Args:
        stages: The most stages.
        slots: The slots of each tier that are told apart.
        tiers: The tiers, those that cost most last.
        forward: What an advance costs.
    """

    def __init__(
        self, stages: int, slots: Sequence[int], tiers: Sequence[Tier], forward: float
    ) -> None:
        self.slots, self.tiers = slots, tiers
        self.value: list[Costs] = []
        self.stored: list[Costs] = []
        self.splits: list[NDArray[np.int32]] = []
        for most in slots:
            rows = 1 if most == ENDLESS else most
            self.value.append(np.zeros((max(1, rows + (most != ENDLESS)), stages + 1)))
            self.stored.append(np.zeros((rows, stages + 1)))
            self.splits.append(np.zeros((rows, stages + 1), dtype=np.int32))
        lefts = [np.zeros(stored.shape) for stored in self.stored]
        if stages > 1:
            for tier, left in zip(tiers, lefts, strict=True):
                left[:, 1] = forward + tier.read
        with np.errstate(over="ignore"):  # Costs of 10^308 are told by their sum.
            for length in range(2, stages + 1):
                for k in range(len(slots)):
                    self._extend(length, k, lefts[k], forward)

    def best(self, stages: int) -> float:
        """V with all slots free."""
        return float(self.value[-1][-1][stages])

    def keep(self, stages: int, room: Nested) -> Held[Nested]:
        """On which tier V stores its start."""
        k, m = room
        while not self._stays(stages, k, m):
            k -= 1
            m = self.slots[k]
        return Held(self.tiers[k].name, False, (k, m if m == ENDLESS else m - 1))

    def split(self, stages: int, held: Held[Nested]) -> int:
        """Where W goes on."""
        k, m = held.room
        return int(self.splits[k][m][stages])

    def gives_back(self, stages: int, held: Held[Nested]) -> bool:
        """Tell whether X gives the slot back and stores the start anew."""
        k, m = held.room
        back = m if m == ENDLESS else m + 1
        return bool(self.value[k][back][stages] < self.stored[k][m][stages])

    def period(self, least: int, forward: float) -> int:
        """The interval of the last tier of least cost per stage; no shorter than so.

        The tier never fills up. An interval is run through, its start written and read,
        and then reversed.
        """
        again = np.minimum(self.stored[-1][0], self.value[-1][0])[least:]
        tier, stages = self.tiers[-1], np.arange(least, least + len(again))
        per_stage = forward + (tier.write + tier.read + again) / stages
        return int(stages[per_stage.argmin()])

    def _stays(self, stages: int, k: int, m: int) -> bool:
        """Tell whether the start is stored on tier k, and not on one before it."""
        if k == 0:
            return True
        if m == 0:
            return False
        here = self.tiers[k].write + self.stored[k][max(m - 1, -1)][stages]
        return bool(here < self.value[k - 1][-1][stages])

    def _extend(self, length: int, k: int, left: Costs, forward: float) -> None:
        value, stored, tier = self.value[k], self.stored[k], self.tiers[k]
        endless = self.slots[k] == ENDLESS
        right = value if endless else value[:-1]
        value[:, length] = self.value[k - 1][-1, length] if k else np.inf
        if not stored.size:
            return
        sums = left[:, 1:length] + right[:, length - 1 : 0 : -1]
        where = sums.argmin(axis=1)
        self.splits[k][:, length] = 1 + where
        stored[:, length] = sums[np.arange(len(where)), where]
        holder = value[:, length] if endless else value[1:, length]
        np.minimum(holder, tier.write + stored[:, length], out=holder)
        again = np.minimum(stored[:, length], holder)
        left[:, length] = length * forward + tier.read + again


@lru_cache(maxsize=4)
def nested_table(
    stages: int, slots: tuple[int, ...], tiers: tuple[Tier, ...], forward: float
) -> NestedTable:
    return NestedTable(stages, slots, tiers, forward_for_ties(forward, tiers))

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
from importlib.util import find_spec
from itertools import product
from math import inf
from typing import Any, NamedTuple, TypeAlias

from retape.schedule._policy_stream import Held

Rooms: TypeAlias = tuple[int, ...]
"""Free slots on each tier."""

ENDLESS = -1
"""The free slots of a tier that never fills up."""

HAS_NUMPY = find_spec("numpy") is not None

_NEARLY_FREE = 1e-9
"""An advance that costs nothing, in the least transfer: of equal schedules the one with
the fewest advances is taken, which would be as good as any."""


class Rate(NamedTuple):
    """A tier, and what a snapshot's write and read cost there."""

    name: str
    write: float
    read: float


class RoomTable:
    """The values V and W and the splits of W, for all lengths and rooms up to one.

    Args:
        stages: The most stages.
        shape: The most slots of each tier.
        rates: The tiers.
        forward: What an advance costs.
    """

    def __init__(
        self, stages: int, shape: Rooms, rates: tuple[Rate, ...], forward: float
    ) -> None:
        self.shape, self.rates, self.forward = shape, rates, forward
        self.axes = {rate.name: axis for axis, rate in enumerate(rates)}
        self.value: dict[Any, Any] = {}
        self.stored: dict[Any, Any] = {}
        self.splits: dict[Any, Any] = {}
        self._make(stages)

    def best(self, length: int, *room: int) -> float:
        """V."""
        return float(self.value[room][length])

    def keep(self, stages: int, room: Any) -> Held[Any]:
        """On which tier V stores its start."""
        name = min(self._open(room), key=lambda name: self._on(name, stages, room))
        return Held(name, False, self.taken(name, room))

    def split(self, stages: int, held: Held[Any]) -> int:
        """Where W goes on."""
        return int(self.splits[held.tier, *held.room][stages])

    def gives_back(self, stages: int, held: Held[Any]) -> Any:
        """The room if X gives the slot back and stores the start anew."""
        back = self.given(held.tier, held.room)
        kept = self.stored[held.tier, *held.room][stages]
        return back if self.value[back][stages] < kept else None

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

    def _make(self, stages: int) -> None:
        for room in product(*map(free_of, self.shape)):
            self.value[room] = [0.0, 0.0]
            for name in self.axes:
                self.stored[name, *room] = [0.0, 0.0]
                self.splits[name, *room] = [0, 0]
        for length in range(2, stages + 1):
            self._extend(length)

    def _extend(self, length: int) -> None:
        for room in self.value:
            for rate in self.rates:
                # One slot is the start's: it is not among the free ones.
                if self.given(rate.name, room) in self.value:
                    cost, split = self._least(rate, length, room)
                    self.stored[rate.name, *room].append(cost)
                    self.splits[rate.name, *room].append(split)
        for room, row in self.value.items():
            choices = [self._on(name, length, room) for name in self._open(room)]
            row.append(min(choices, default=inf))

    def _least(self, rate: Rate, length: int, room: Rooms) -> tuple[float, int]:
        right = self.value[room]
        kept = self.stored[rate.name, *room]
        moved = self.value[self.given(rate.name, room)]
        return min(
            (
                i * self.forward
                + right[length - i]
                + rate.read
                + min(kept[i], moved[i]),
                i,
            )
            for i in range(1, length)
        )

    def _on(self, name: str, length: int, room: Rooms) -> float:
        left = self.taken(name, room)
        write = self.rates[self.axes[name]].write
        return float(write + self.stored[name, *left][length])

    def _open(self, room: Rooms) -> list[str]:
        """The tiers that have a free slot."""
        return [name for name, axis in self.axes.items() if room[axis]]


class RoomArrays(RoomTable):
    """The same, made by NumPy for all rooms at once: some thirty times faster."""

    def _make(self, stages: int) -> None:
        import numpy as np

        shape = *(len(free_of(most)) for most in self.shape), stages + 1
        value = np.zeros(shape)
        # Of each tier: W, its split, and i * f + r + X(i), all beside a slot of it.
        parts = [self._part(np, value, axis) for axis in range(len(self.rates))]
        with np.errstate(over="ignore"):  # Costs of 10^308 are told by their sum.
            self._fill(np, stages, value, parts)
        self._name(value, parts)

    def _fill(
        self, np: Any, stages: int, value: Any, parts: Sequence[Sequence[Any]]
    ) -> None:
        for length in range(2, stages + 1):
            least = np.full(value.shape[:-1], inf)
            for write, right, kept, splits, left, holder, _ in parts:
                sums = left[..., 1:length] + right[..., length - 1 : 0 : -1]
                if not sums.size:
                    continue
                where = sums.argmin(axis=-1)[..., None]
                splits[..., length] = 1 + where[..., 0]
                kept[..., length] = np.take_along_axis(sums, where, -1)[..., 0]
                on = least[holder]
                np.minimum(on, kept[..., length] + write, out=on)
            value[..., length] = least
            for _, _, kept, _, left, holder, read in parts:
                again = np.minimum(kept[..., length], value[holder][..., length])
                left[..., length] = length * self.forward + read + again

    def _part(self, np: Any, value: Any, axis: int) -> Sequence[Any]:
        """What is kept for a tier: views on the rooms beside one of its slots."""
        beside = [slice(None)] * len(self.shape)
        holder = list(beside)
        if self.shape[axis] != ENDLESS:
            # A slot of the tier is taken, and given back.
            beside[axis], holder[axis] = slice(None, -1), slice(1, None)
        right = value[tuple(beside)]
        kept, left = np.zeros(right.shape), np.zeros(right.shape)
        splits = np.zeros(right.shape, dtype=np.int32)
        _, write, read = self.rates[axis]
        if right.shape[-1] > 1:
            left[..., 1] = self.forward + read
        return write, right, kept, splits, left, tuple(holder), read

    def _name(self, value: Any, parts: Sequence[Sequence[Any]]) -> None:
        frees = list(map(free_of, self.shape))
        for place in product(*(range(len(free)) for free in frees)):
            room = tuple(free[at] for free, at in zip(frees, place, strict=True))
            self.value[room] = value[place]
            for rate, part in zip(self.rates, parts, strict=True):
                if all(map(int.__lt__, place, part[2].shape)):
                    self.stored[rate.name, *room] = part[2][place]
                    self.splits[rate.name, *room] = part[3][place]


def free_of(most: int) -> Sequence[int]:
    """The numbers of free slots that are told apart, of at most so many."""
    return (ENDLESS,) if most == ENDLESS else range(most + 1)


def forward_for_ties(forward: float, rates: Sequence[Rate]) -> float:
    """The cost of an advance for a table, which is never quite nothing."""
    if forward:
        return forward
    transfers = [cost for rate in rates for cost in rate[1:] if cost > 0]
    return _NEARLY_FREE * min(transfers, default=1.0)


@lru_cache(maxsize=4)
def room_table(
    stages: int, shape: Rooms, rates: tuple[Rate, ...], forward: float
) -> RoomTable:
    kind = RoomArrays if HAS_NUMPY else RoomTable
    return kind(stages, shape, rates, forward_for_ties(forward, rates))

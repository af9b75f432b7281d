"""The dynamic programme of what to keep: over tiers of any number, states and tapes.

A snapshot is kept until the stage that it begins has been reversed or is the next to
be; when it is read for another round something else may be kept in its place. Among
these (persistent) schedules the programme finds the cheapest. With f the cost of an
advance, w and r those of writing and reading a value of a kind, m a room, m - k what is
free beside a value of kind k, and L stages:

    V(L, m)       the start is not kept yet:  0 if L = 1, else the least over k of
                  w + W(k, L, m - k)        its state is kept
                  w + V(L-1, m - k)         the tape of its first stage is kept
    W(k, L, m)    the start is kept and in hand:
                  min over i of  i*f + V(L-i, m) + r + X(k, i, m)
    X(k, i, m)    the same after a read: 0 if i = 1, else the least of
                  W(k, i, m)  and  V(i, m + k) with its place given back

What a room is, and what a value takes of it, a `Space` tells:

- `TierSlots`: the free slots of each tier, in every combination;
- `NestedSlots`: those of one tier, where the ones before it are all free (H-Revolve);
- `MixedRoom`: bytes, for states and tapes (Maddison 2024 for p = q = 1 and slots).
"""

from collections.abc import Hashable
from functools import lru_cache
from math import inf
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from retape.schedule._tables._space import Kind, Space

R = TypeVar("R", bound=Hashable)


class KeptTable(Generic[R]):
    """V, W and the splits of W for all rooms of a space, and up to so many stages.

    Args:
        space: What may be kept.
        stages: The most stages.
    """

    def __init__(self, space: Space[R], stages: int) -> None:
        self.space = space
        self.rooms = {room: row for row, room in enumerate(space.rooms())}
        self.states: dict[tuple[Kind, R], int] = {}
        self._choices = [self._choices_of(room) for room in self.rooms]
        held = list(self.states)
        self._right = np.array([self.rooms[room] for _, room in held], dtype=np.intp)
        self._back = np.array(
            [self.rooms[space.give(room, kind)] for kind, room in held], dtype=np.intp
        )
        self.value = np.zeros((len(self.rooms), stages + 1))
        self.stored = np.zeros((len(held), stages + 1))
        self.splits = np.zeros((len(held), stages + 1), dtype=np.int32)
        with np.errstate(over="ignore"):  # Costs of 10^308 are told by their sum.
            self._fill(stages, [kind for kind, _ in held])

    def best(self, stages: int, room: R) -> float:
        """V."""
        return float(self.value[self.rooms[room], stages])

    def keep(self, stages: int, room: R) -> Kind:
        """What V keeps; of equals the nearest."""

        def cost(choice: tuple[Kind, int]) -> Any:
            kind, row = choice
            if kind.tape:
                return kind.write + self.value[row, stages - 1]
            return kind.write + self.stored[row, stages]

        return min(self._choices[self.rooms[room]], key=cost)[0]

    def split(self, stages: int, kind: Kind, room: R) -> int:
        """Where W goes on."""
        return int(self.splits[self.states[kind, room], stages])

    def gives_back(self, stages: int, kind: Kind, room: R) -> bool:
        """Whether X gives the place back."""
        row = self.states[kind, room]
        return bool(self.value[self._back[row], stages] < self.stored[row, stages])

    def again(self, stages: int, kind: Kind, room: R) -> float:
        """X."""
        return float(self._again(stages, kind, room))

    def period(self, least: int, kind: Kind, room: R) -> int:
        """The interval of least cost per stage, of states that never run out of places.

        It is no shorter than `least`. An interval is run through, its start written and
        read, and then reversed.
        """
        again = self._again(slice(least, None), kind, room)
        stages = np.arange(least, least + len(again))
        per_stage = self.space.forward + (kind.write + kind.read + again) / stages
        return int(stages[per_stage.argmin()])

    def _again(self, stages: Any, kind: Kind, room: R) -> Any:
        row = self.states[kind, room]
        return np.minimum(self.stored[row, stages], self.value[self._back[row], stages])

    def _choices_of(self, room: R) -> list[tuple[Kind, int]]:
        """What has a place: of states the rows of W, of tapes those of V."""
        found: list[tuple[Kind, int]] = []
        for kind in self.space.kinds:
            beside = self.space.take(room, kind)
            if beside is not None:
                new = len(self.states)
                of_state = self.states.setdefault
                row = self.rooms[beside] if kind.tape else of_state((kind, beside), new)
                found.append((kind, row))
        return found

    def _fill(self, stages: int, held: list[Kind]) -> None:
        value, stored, forward = self.value, self.stored, self.space.forward
        write = np.array([kind.write for kind in held])
        read = np.array([kind.read for kind in held])
        tapes = [kind for kind in self.space.kinds if kind.tape]
        choices, rows = self._numbered(tapes), np.arange(len(held))
        # A copy of V for each row of W, and i*f + r + X: what W is the least sum of.
        right, left = np.zeros(stored.shape), np.zeros(stored.shape)
        left[:, 1:2] = (forward + read)[:, None]
        for length in range(2, stages + 1):
            sums = left[:, 1:length] + right[:, length - 1 : 0 : -1]
            where = sums.argmin(axis=1)
            self.splits[:, length] = 1 + where
            stored[:, length] = kept = sums[rows, where]
            taped = [tape.write + value[:, length - 1] for tape in tapes]
            cost = np.concatenate([write + kept, *taped, [inf]])
            least = cost[choices].min(axis=1)
            value[:, length] = least
            right[:, length] = least[self._right]
            again = np.minimum(kept, least[self._back])
            left[:, length] = length * forward + read + again

    def _numbered(self, tapes: list[Kind]) -> NDArray[np.intp]:
        """The choices of all rooms, as places in the costs of `_fill`."""
        begins = {
            tape: len(self.states) + place * len(self.rooms)
            for place, tape in enumerate(tapes)
        }
        found = [[begins.get(k, 0) + row for k, row in each] for each in self._choices]
        nothing = len(self.states) + len(tapes) * len(self.rooms)
        most = max(map(len, found), default=0) or 1
        padded = [each + [nothing] * (most - len(each)) for each in found]
        return np.array(padded, dtype=np.intp)


@lru_cache(maxsize=8)
def kept_table(space: Space[Any], stages: int) -> KeptTable[Any]:
    """A table, kept."""
    return KeptTable(space, stages)

"""What may be kept of a run, and what that leaves: one account for all schedules.

Slots on several tiers (`TierSlots`, and `NestedSlots` beside it), or bytes that states
and tapes take (`MixedRoom`), differ in what is free and in what becomes of it. All
else, which is the same, is told by `_kept_table` and `_table_policy`. A *room* is what
is free at some time, as a space counts it.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from retape.schedule._split import binomial_split
from retape.schedule._tier import Tier

R = TypeVar("R", bound=Hashable)

ENDLESS = -1
"""The free slots of a tier that never fills up."""


class Kind(NamedTuple):
    """A kind of value that may be kept at the start of an interval.

    Attributes:
        tier: Where.
        write: What writing it costs.
        read: What reading it costs.
        tape: Whether it is the tape of the first stage; otherwise its state.
    """

    tier: str
    write: float = 0.0
    read: float = 0.0
    tape: bool = False


class Space(Generic[R]):
    """Where values are kept.

    Attributes:
        kinds: Of values, the nearest first.
        forward: What an advance costs.
    """

    __slots__ = ()

    kinds: tuple[Kind, ...]
    forward: float

    def rooms(self) -> Iterable[R]:
        """All rooms that a table tells apart."""
        raise NotImplementedError

    def take(self, room: R, kind: Kind) -> R | None:
        """What is free beside a value of a kind; `None` if it has no place."""
        raise NotImplementedError

    def give(self, room: R, kind: Kind) -> R:
        """What is free once a value that is beside this room has gone."""
        raise NotImplementedError

    def free(self, room: R) -> int:
        """The states that have a place, for binomial splits."""
        raise NotImplementedError

    @property
    def tabled(self) -> "Space[R]":
        """The space that a table is made of, which may be smaller."""
        return self

    def seen(self, room: R) -> R:
        """The room that stands for this one there."""
        return room

    def of(self, tier: str, tape: bool = False) -> Kind:
        """The kind that is called so."""
        return next(k for k in self.kinds if k.tier == tier and k.tape == tape)

    def keep(self, stages: int, room: R) -> Kind:
        """What to keep of an interval beyond a table: what is held longest is far."""
        del stages
        return [k for k in self.kinds if self.take(room, k) is not None][-1]

    def split(self, stages: int, room: R) -> int:
        """Where to cut an interval longer than a table."""
        return binomial_split(stages, 1 + self.free(room))

    def is_alone(self, room: R, kind: Kind) -> bool:
        """Tell whether nothing but a state of this kind has a place, and that one."""
        given = self.give(room, kind)
        fit = [each for each in self.kinds if self.take(given, each) is not None]
        return fit == [kind] and self.take(room, kind) is None


def kinds_of(tiers: Sequence[Tier]) -> tuple[Kind, ...]:
    """The states of each tier."""
    return tuple(Kind(tier.name, tier.write, tier.read) for tier in tiers)


def forward_for_ties(forward: float, tiers: Sequence[Tier]) -> float:
    """The cost of an advance for a table, which is never quite nothing."""
    if forward:
        return forward
    transfers = [cost for tier in tiers for cost in (tier.write, tier.read) if cost > 0]
    return _NEARLY_FREE * min(transfers, default=1.0)


_NEARLY_FREE = 1e-9
"""An advance that costs nothing, in the least transfer: of equal schedules the one with
the fewest advances is taken, which would be as good as any."""


Rooms: TypeAlias = tuple[int, ...]
"""Free slots on each tier."""


@dataclass(frozen=True, slots=True)
class TierSlots(Space[Rooms]):
    """Slots on several tiers.

    Attributes:
        most: The slots of each tier that a table tells apart; more count as so many.
        kinds: A state on each tier, the nearest first.
        forward: What an advance costs.
    """

    most: Rooms
    kinds: tuple[Kind, ...]
    forward: float

    def rooms(self) -> Iterator[Rooms]:
        frees = [(ENDLESS,) if n == ENDLESS else range(n + 1) for n in self.most]
        return product(*frees)

    def take(self, room: Rooms, kind: Kind) -> Rooms | None:
        return self._changed(room, kind, -1) if room[self._axis(kind)] else None

    def give(self, room: Rooms, kind: Kind) -> Rooms:
        return self._changed(room, kind, 1)

    def free(self, room: Rooms) -> int:
        return sum(room)

    def seen(self, room: Rooms) -> Rooms:
        return tuple(map(min, room, self.most))

    def _axis(self, kind: Kind) -> int:
        return self.kinds.index(kind)

    def _changed(self, room: Rooms, kind: Kind, by: int) -> Rooms:
        axis = self._axis(kind)
        if room[axis] == ENDLESS:
            return room
        return (*room[:axis], room[axis] + by, *room[axis + 1 :])


_ADVANCE = 2.0**26
"""What an advance costs, where a write costs 1: of a table, up to 4,898 stages, there
are at most 2^24 of both, so their sums are exact."""

_STATE = Kind("memory", write=1.0)
_TAPE = Kind("memory", write=1.0, tape=True)


@dataclass(frozen=True, slots=True)
class MixedRoom(Space[int]):
    """Room that states and tapes share, in bytes or in slots.

    A cost is advances and writes in one number: among equal advances the fewest writes
    are taken. Beyond a table's reach states are kept, at binomial splits; but where all
    tapes fit, they are kept.

    Attributes:
        room: All of it.
        state: What a state takes.
        tape: What the tape of a stage takes.
    """

    room: int
    state: int
    tape: int
    kinds: tuple[Kind, ...] = (_TAPE, _STATE)
    forward: float = _ADVANCE

    def rooms(self) -> Iterator[int]:
        found, fresh = {self.room}, [self.room]
        while fresh:
            at = fresh.pop()
            for less in (at - self.state, at - self.tape):
                if less >= 0 and less not in found:
                    found.add(less)
                    fresh.append(less)
        return iter(sorted(found))

    def take(self, room: int, kind: Kind) -> int | None:
        left = room - (self.tape if kind.tape else self.state)
        return left if left >= 0 else None

    def give(self, room: int, kind: Kind) -> int:
        return room + (self.tape if kind.tape else self.state)

    def free(self, room: int) -> int:
        return room // self.state

    def keep(self, stages: int, room: int) -> Kind:
        return _TAPE if room >= (stages - 1) * self.tape else _STATE

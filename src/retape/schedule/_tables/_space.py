"""What may be kept of a run, and what that leaves: one account for all schedules.

Slots on several tiers, or bytes that states and tapes take, differ in what is free and
in what becomes of it. All else, which is the same, is told by `_kept_table` and
`_table_policy`. A *room* is what is free at some time, as a space counts it.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

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

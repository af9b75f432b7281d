"""Room for states and for tapes of stages, in bytes or in slots.

A cost is advances and writes in one number: among equal advances the fewest writes are
taken. Beyond a table's reach states are kept, at binomial splits; but where all tapes
fit, they are kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from retape.schedule._tables._space import Kind, Space
from retape.schedule._tables._table_policy import TablePolicy

EXACT = 24_000_000
"""The most (stages^2 * rooms) of a table: 0.1 s for 300 stages and 250 rooms (a
processor of a server, 2026-11-26)."""

MOST_ROOMS = 20_000
"""The most different rooms of a table: 0.4 s, for 30 stages."""

_ADVANCE = 2.0**26
"""What an advance costs, where a write costs 1: of `EXACT`, up to 4,898 stages, there
are at most 2^24 of both, so their sums are exact."""

_STATE = Kind("memory", write=1.0)
_TAPE = Kind("memory", write=1.0, tape=True)


@dataclass(frozen=True, slots=True)
class MixedRoom(Space[int]):
    """Room that states and tapes share.

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


@lru_cache(maxsize=8)
def mixed_policy(stages: int, room: int, state: int, tape: int) -> TablePolicy[int]:
    """The policy for up to so many stages; with too many rooms it has no table."""
    space, reach = MixedRoom(room, state, tape), 1
    if min(room, (room // state + 1) * (room // tape + 1)) <= MOST_ROOMS:
        rooms, reach = len(list(space.rooms())), stages
        while reach > 1 and reach**2 * rooms > EXACT:
            reach = reach * 7 // 8
    return TablePolicy(space, reach)

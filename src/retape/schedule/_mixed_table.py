"""The dynamic programme of mixed schedules: a slot holds a state or a stage's tape.

With p and q what a state and a tape take, and a room of B beside them, L stages whose
start is in hand take the advances

    V(L, B)   0 if L = 1, else the least of
              V(L-1, B-q)      the tape of the first stage is kept, if B >= q
              W(L, B-p)        the state is kept, if B >= p
    W(L, B)   min over i of  i + V(L-i, B) + X(i, B)
    X(i, B)   0 if i = 1, else the least of W(i, B) and V(i, B+p): after a reading the
              slot is given back, and something else kept

(Maddison 2024, eq. for p = q = 1 and slots). Among equal advances the fewest writes are
taken: a cost is advances * 2^64 + writes, one exact integer.
"""

from functools import lru_cache
from operator import add

from retape.schedule._policy_stream import Held, Released
from retape.schedule._split import binomial_split

EXACT = 24_000_000
"""The most (stages^2 * rooms) for which the programme is run: a second or so."""

MOST_ROOMS = 20_000
"""The most different rooms for which it is run: a few seconds."""

_ADVANCE = 1 << 64
_NEVER = 1 << 200


class MixedTable:
    """V, W and their choices for up to `reach` stages and all rooms within one.

    Beyond `reach` stages states are kept, at binomial splits; the programme decides
    about all shorter intervals; but where all tapes fit, they are kept. With too many
    rooms `reach` is 1.
    """

    def __init__(self, stages: int, room: int, state: int, tape: int) -> None:
        self.state, self.tape = state, tape
        few = min(room, (room // state + 1) * (room // tape + 1)) <= MOST_ROOMS
        rooms = _rooms(room, state, tape) if few else []
        self.beside_state = {room - state for room in rooms if room >= state}
        self.reach = stages if few else 1
        while self.reach > 1 and self.reach**2 * len(rooms) > EXACT:
            self.reach = self.reach * 7 // 8
        self.value = {room: [0, 0] for room in rooms}
        self.inner = {room: [_NEVER, _NEVER] for room in rooms}
        self.splits = {room: [0, 0] for room in rooms}
        # i * ADVANCE + X(i, B), for W.
        self.left = {room: [0, _ADVANCE] for room in rooms}
        for length in range(2, self.reach + 1):
            for room in rooms:
                self._extend(length, room)

    def keep(self, stages: int, room: int) -> Held[int]:
        """The choice of V."""
        tape, state = room - self.tape, room - self.state
        if stages > self.reach:
            tapes = room >= (stages - 1) * self.tape
        else:
            tapes = tape >= 0 and (
                state < 0 or self.value[tape][stages - 1] <= self.inner[state][stages]
            )
        return Held("memory", tapes, tape if tapes else state)

    def split(self, stages: int, held: Held[int]) -> int:
        """The choice of W."""
        if stages > self.reach:
            return binomial_split(stages, 1 + held.room // self.state)
        return self.splits[held.room][stages]

    def after_read(self, stages: int, held: Held[int]) -> Held[int] | Released[int]:
        """The choice of X."""
        room = held.room + self.state
        if stages > self.reach:
            return held
        again = self.value[room][stages] < self.inner[held.room][stages]
        return Released(room) if again else held

    def is_alone(self, held: Held[int]) -> bool:
        """Tell whether neither a state nor a tape fits, were the slot given back."""
        return held.room < min(self.state, self.tape - self.state)

    def _extend(self, length: int, room: int) -> None:
        # For one room after another, from the least: V needs W of less room.
        value, left = self.value[room], self.left[room]
        if room in self.beside_state:
            sums = list(map(add, left[1:length], value[length - 1 : 0 : -1]))
            least = min(sums)
            self.inner[room].append(least)
            self.splits[room].append(1 + sums.index(least))
        tape, state = room - self.tape, room - self.state
        value.append(
            min(
                1 + self.value[tape][length - 1] if tape >= 0 else _NEVER,
                1 + self.inner[state][length] if state >= 0 else _NEVER,
            )
        )
        if state >= 0:
            # X of the room beside this state, now that V(length, room) is known.
            kept = min(self.inner[state][length], value[length])
            self.left[state].append(length * _ADVANCE + kept)


def _rooms(room: int, state: int, tape: int) -> list[int]:
    """All that can be left of a room, in ascending order."""
    found, fresh = {room}, [room]
    while fresh:
        at = fresh.pop()
        for less in (at - state, at - tape):
            if less >= 0 and less not in found:
                found.add(less)
                fresh.append(less)
    return sorted(found)


@lru_cache(maxsize=8)
def mixed_table(stages: int, room: int, state: int, tape: int) -> MixedTable:
    return MixedTable(stages, room, state, tape)

"""Streams of a policy that says what is kept where.

Two tiers and mixed schedules differ in what a slot costs and may hold. What they share
is here: an interval of more than one stage keeps something at its start, either its
state, from which it is entered again and again, or the tape of its first stage. A
policy says what; it is asked with `room`, its own account of what is free.
"""

import heapq
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from retape.schedule._action import (
    Action,
    Advance,
    Drop,
    Restore,
    Reverse,
    Store,
    Sweep,
    Tape,
)

R = TypeVar("R", bound=Hashable)


class Held(NamedTuple, Generic[R]):
    """The kind of value kept at the start of an interval.

    Attributes:
        tier: Where.
        tape: Whether it is the tape of the first stage; otherwise its state.
        room: What is free beside it.
    """

    tier: str
    tape: bool
    room: R


class Policy(Protocol[R]):
    """Decides about intervals of two stages or more."""

    def keep(self, stages: int, room: R) -> Held[R]:
        """Choose what to keep at a start that is in hand and not kept."""
        ...

    def split(self, stages: int, held: Held[R]) -> int:
        """The split: steps to advance from a state that is kept and in hand."""
        ...

    def gives_back(self, stages: int, held: Held[R]) -> R | None:
        """The room once a state just read gives up its slot; `None` if it stays."""
        ...


@dataclass(slots=True)
class _Part(Generic[R]):
    lo: int
    hi: int
    held: Held[R]
    slot: int


@dataclass(slots=True)
class _Slots:
    """The numbers of slots on one tier, lowest first."""

    free: list[int]
    high: int = 0

    def take(self) -> int:
        if self.free:
            return heapq.heappop(self.free)
        self.high += 1
        return self.high - 1


class Stream(Generic[R]):
    """The actions that a policy means, with one entry on a stack per slot in use.

    Args:
        policy: The decisions.
        length: Steps.
        stage: Steps in a stage.
        room: What is free at the beginning.
        held: Of a run that stands before its last stage, what it has kept on the way:
            the stage, how it is held, the slot. Otherwise the run is at its beginning.
    """

    def __init__(
        self,
        policy: Policy[R],
        length: int,
        stage: int,
        room: R,
        held: Sequence[tuple[int, Held[R], int]] | None = None,
    ) -> None:
        self.policy, self.length, self.stage, self.room = policy, length, stage, room
        self.turned = held is not None
        given = held or ()
        last = max(0, -(-length // stage) - 1)
        ends = [*(at for at, _, _ in given[1:]), last]
        self.stack: list[_Part[R]] = [
            _Part(at, end, how, slot)
            for (at, how, slot), end in zip(given, ends, strict=False)
        ]
        self.slots: dict[str, _Slots] = {}
        for tier in {part.held.tier for part in self.stack}:
            taken = {part.slot for part in self.stack if part.held.tier == tier}
            high = 1 + max(taken)
            free = [slot for slot in range(high) if slot not in taken]
            self.slots[tier] = _Slots(free, high)

    def __iter__(self) -> Iterator[Action]:
        stages = -(-self.length // self.stage)
        first = max(0, stages - 1) if self.turned else 0
        yield from self._descend(first, stages, self.room)
        while self.stack:
            part = self.stack[-1]
            at, size = part.lo * self.stage, part.hi - part.lo
            if part.held.tape:
                # A stage that is kept is never the last one of the run: it is whole.
                yield Sweep(at, at + self.stage, part.slot, part.held.tier)
                yield self._pop(at)
                continue
            yield Restore(at, part.slot, part.held.tier)
            if size == 1:
                yield self._pop(at)
                yield Reverse(at, min(at + self.stage, self.length))
            elif (room := self.policy.gives_back(size, part.held)) is not None:
                yield self._pop(at)
                yield from self._descend(part.lo, part.hi, room)
            else:
                part.hi = part.lo + self.policy.split(size, part.held)
                yield Advance(at, part.hi * self.stage)
                yield from self._descend(part.hi, part.lo + size, part.held.room)

    def _descend(self, lo: int, hi: int, room: R) -> Iterator[Action]:
        """From a start that is in hand and not kept to the interval's last stage."""
        while hi - lo > 1:
            held = self.policy.keep(hi - lo, room)
            slot, at = self.slots.setdefault(held.tier, _Slots([])).take(), lo
            if held.tape:
                lo += 1
                yield Tape(at * self.stage, lo * self.stage, slot, held.tier)
            else:
                lo += self.policy.split(hi - lo, held)
                yield Store(at * self.stage, slot, held.tier)
                yield Advance(at * self.stage, lo * self.stage)
            self.stack.append(_Part(at, lo, held, slot))
            room = held.room
        yield Reverse(lo * self.stage, min(hi * self.stage, self.length))

    def _pop(self, at: int) -> Drop:
        part = self.stack.pop()
        heapq.heappush(self.slots[part.held.tier].free, part.slot)
        return Drop(at, part.slot, part.held.tier)

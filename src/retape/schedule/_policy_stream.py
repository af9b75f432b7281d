"""Streams of a policy that says what is kept where.

Binomial schedules, tiers and mixed schedules differ in what a slot costs and may hold.
What they share is here: an interval of more than one stage keeps something at its
start, either its state, from which it is entered again and again, or the tape of its
first stages. A policy says what; it is asked with `room`, its own account of what is
free. The stream is the paper's `TREEVERSE` (Fig. 26) without its recursion: an explicit
stack holds one entry for each slot in use.

An interval is told by its first stage and the one after its last. Most policies go by
how many there are; a chain's stages are single steps, which differ, and several that
are taped one after the other are one tape.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

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

NEW: Any = cast("Any", tuple).__new__
"""Makes a named tuple of a tuple: its own constructor takes as long as an action."""


class Held(NamedTuple, Generic[R]):
    """The kind of value kept at the start of an interval.

    Attributes:
        tier: Where.
        tape: Whether it is the tape of the first stages; otherwise the state there.
        room: What is free beside it.
        stages: How many are on the tape, and if these are all, they are reversed at
            once; or how many are advanced from the state, to the next one that is kept.
    """

    tier: str
    tape: bool
    room: R
    stages: int = 1


class Released(NamedTuple, Generic[R]):
    """A state that was read and gives up its slot.

    Attributes:
        room: What is free then.
    """

    room: R


class Policy(Protocol[R]):
    """Decides about intervals of two stages or more."""

    def keep(self, lo: int, hi: int, room: R) -> Held[R]:
        """Choose what to keep at a start in hand that is not kept, and the split."""
        ...

    def after_read(self, lo: int, hi: int, held: Held[R]) -> Held[R] | Released[R]:
        """What becomes of a state just read, for what is left of its interval.

        Of one that stays it is the split that is new.
        """
        ...

    def is_alone(self, held: Held[R]) -> bool:
        """Tell whether nothing else is ever kept in the interval: one stage after the
        other is reached from its start."""
        ...


@dataclass(slots=True)
class _Part(Generic[R]):
    """A slot in use, and the stages that are still to be reversed from it."""

    lo: int
    hi: int
    held: Held[R]
    slot: int


@dataclass(slots=True)
class SlotNumbers:
    """The numbers of slots on one tier; the one given back last is taken first."""

    free: list[int]
    high: int = 0

    def take(self) -> int:
        """The number of a slot that is free."""
        if self.free:
            return self.free.pop()
        self.high += 1
        return self.high - 1


class Stream(Generic[R]):
    """The actions that a policy means.

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
        self.stages = -(-length // stage)
        self.first = 0 if held is None else max(0, self.stages - 1)
        given = held or ()
        ends = [*(at for at, _, _ in given[1:]), self.first]
        self.stack: list[_Part[R]] = [
            _Part(at, end, how, slot)
            for (at, how, slot), end in zip(given, ends, strict=False)
        ]
        self.slots: dict[str, SlotNumbers] = {}
        for tier in {part.held.tier for part in self.stack}:
            taken = {part.slot for part in self.stack if part.held.tier == tier}
            high = 1 + max(taken)
            free = [slot for slot in reversed(range(high)) if slot not in taken]
            self.slots[tier] = SlotNumbers(free, high)

    def __iter__(self) -> Iterator[Action]:
        # One loop: a generator inside another costs as much as an action.
        new = NEW
        policy, stack, stage, length = self.policy, self.stack, self.stage, self.length
        lo, hi, room = self.first, self.stages, self.room
        at = lo * stage
        while True:
            # From a start that is in hand and not kept to the interval's last stage.
            while hi - lo > 1:
                held = policy.keep(lo, hi, room)
                tier, is_tape, room, count = held
                if count == hi - lo:
                    break
                slot, start, begin = self._take(tier), lo, at
                lo += count
                at = lo * stage
                if is_tape:
                    yield new(Tape, (begin, at, slot, tier))
                else:
                    yield new(Store, (begin, slot, tier))
                    yield new(Advance, (begin, at))
                stack.append(_Part(start, lo, held, slot))
            yield new(Reverse, (at, min(hi * stage, length)))
            # Down the stack to a start that is gone on from.
            while stack:
                part = stack[-1]
                held, lo, hi = part.held, part.lo, part.hi
                tier, is_tape = held.tier, held.tape
                at = lo * stage
                if is_tape:
                    # A stage that is kept is never the last of the run: it is whole.
                    yield new(Sweep, (at, hi * stage, part.slot, tier))
                    yield self._pop(at)
                    continue
                yield new(Restore, (at, part.slot, tier))
                if hi - lo == 1:
                    yield self._pop(at)
                    yield new(Reverse, (at, min(at + stage, length)))
                    continue
                after = policy.after_read(lo, hi, held)
                if isinstance(after, Released):
                    yield self._pop(at)
                    room = after.room
                    break
                part.held = after
                part.hi = lo = lo + after.stages
                begin, at, room = at, lo * stage, after.room
                yield new(Advance, (begin, at))
                break
            else:
                return

    def _take(self, tier: str) -> int:
        slots = self.slots.get(tier)
        if slots is None:
            slots = self.slots[tier] = SlotNumbers([])
        return slots.take()

    def _pop(self, at: int) -> Drop:
        part = self.stack.pop()
        self.slots[part.held.tier].free.append(part.slot)
        return NEW(Drop, (at, part.slot, part.held.tier))

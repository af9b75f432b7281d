"""What is in slots over time: the one fold over actions that all who ask it share.

A picture of the slots, the bytes of a run, the peak of a chain: each is a sum over what
is held after each action, by what a state and a tape weigh. Where a value is made and
where it is read for the last time is known of programs, too: there `running_sums` adds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

from retape.schedule._action import Action, Advance, Drop, Reverse, Store, Tape


class InUse(NamedTuple):
    """What is held after an action.

    Attributes:
        action: The action.
        work: Steps run until then, with a tape or without.
        held: The weight of all slots of each tier that was used; it goes on changing.
    """

    action: Action
    work: int
    held: Mapping[str, int]

    @property
    def total(self) -> int:
        """The weight of all slots."""
        return sum(self.held.values())


def in_use(
    actions: Iterable[Action],
    state: Callable[[int], int] = lambda step: 1,
    tape: Callable[[int, int], int] = lambda start, stop: 1,
) -> Iterator[InUse]:
    """Follow what is in slots.

    Args:
        actions: A schedule.
        state: What the state before a step weighs.
        tape: What the tape of the steps from `start` to `stop` weighs in a slot.

    Examples:
        >>> from retape.schedule import Schedule
        >>> for action, work, held in in_use(Schedule(2, snapshots=1)):
        ...     print(type(action).__name__, work, held)
        Store 0 {'memory': 1}
        Advance 1 {'memory': 1}
        Reverse 2 {'memory': 1}
        Restore 2 {'memory': 1}
        Drop 2 {'memory': 0}
        Reverse 3 {'memory': 0}
    """
    work, held, slots = 0, dict[str, int](), dict[tuple[str, int], int]()

    def put(slot: int, tier: str, weight: int) -> None:
        slots[tier, slot] = weight
        held[tier] = held.get(tier, 0) + weight

    for action in actions:
        match action:
            case Advance(start, stop) | Reverse(start, stop):
                work += stop - start
            case Store(step, slot, tier):
                put(slot, tier, state(step))
            case Tape(start, stop, slot, tier):
                work += stop - start
                put(slot, tier, tape(start, stop))
            case Drop(_, slot, tier):
                held[tier] -= slots.pop((tier, slot))
            case _:
                pass
        yield InUse(action, work, held)


def running_sums(intervals: Iterable[tuple[int, int, int]], length: int) -> list[int]:
    """For each of `length` positions, the weights of the intervals that cover it.

    Args:
        intervals: Triples (start, stop, weight), `0 <= start <= stop <= length`; the
            last position is not covered.
        length: The number of positions.

    Examples:
        >>> running_sums([(0, 2, 10), (1, 4, 5)], 5)
        [10, 15, 5, 5, 0]
    """
    # A difference array: what comes and goes at each position, then summed up.
    change = [0] * (length + 1)
    for start, stop, weight in intervals:
        change[start] += weight
        change[stop] -= weight
    sums = list(accumulate(change))
    sums.pop()  # zero: all intervals have ended
    return sums

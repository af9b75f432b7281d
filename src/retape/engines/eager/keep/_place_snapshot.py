"""Parts of a running program: snapshots between them, and what is let go of one."""

from collections.abc import Container, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from retape.engines.eager.trace._step import Snapshot
from retape.engines.eager.trace._trace import Trace

if TYPE_CHECKING:
    from retape.engines.eager.trace._run import Run


class PartBegin(NamedTuple):
    """Where a part of a program begins: what it saves can be let go at its end.

    Attributes:
        step: The first step of it.
        latest: What autograd had saved last before; `None` if nothing is held of it.
    """

    step: int
    latest: int | None

    @classmethod
    def here(cls, trace: Trace) -> "PartBegin":
        """A part that begins now."""
        return cls(len(trace.steps), next(reversed(trace.tail.steps), None))

    def let_go(self, trace: Trace, hold: Container[int] = ()) -> bool:
        """Let go of what was saved since, and tell whether there was anything.

        Args:
            trace: Where it is held.
            hold: Slots that stay.
        """
        found: list[int] = []
        for slot in reversed(trace.tail.steps):
            if slot == self.latest or trace.tail.steps[slot] < self.step:
                break
            if slot not in hold:
                found.append(slot)
        for slot in found:
            trace.drop_from_tail(slot)
        return bool(found)


def snapshot_here(run: "Run", tier: str = "memory") -> None:
    """Hold what is read from here on: nothing before is run for it."""
    trace = run.trace
    if trace.opened.position < len(trace.steps):
        place_snapshot(trace, len(trace.steps), tier)
        run.tally.snapshots += 1


def place_snapshot(trace: Trace, position: int, tier: str = "memory") -> None:
    """Hold what was made before `position` and read at or after it."""
    opened = trace.snapshots[-1]
    slots = {slot for slot in opened.slots if trace.last_read[slot] >= position}
    made = range(trace.first_slot(opened.position), trace.first_slot(position))
    for slot in made:
        if trace.producer[slot] >= 0 and trace.last_read[slot] >= position:
            if slot in trace.held.storages:
                slots.add(slot)
    trace.held.again(slots)
    trace.opened = Snapshot(position, slots, trace.saved, tier)
    trace.snapshots.append(trace.opened)


def put_away(
    trace: Trace, snapshots: Sequence[Snapshot], *, with_tail: bool = False
) -> None:
    """Move what complete snapshots hold into the store, if there is one.

    A snapshot is complete when the next one is placed.

    Args:
        trace: Where it is held.
        snapshots: The snapshots.
        with_tail: What autograd has saved goes, too, and is read from there.
    """
    if trace.held.elsewhere is not None:
        tail = () if with_tail else trace.tail.steps
        for each in snapshots:
            slots = [slot for slot in each.slots if slot not in tail]
            trace.held.elsewhere.put_away(slots, each.tier)


def merge_snapshot(trace: Trace, left: Snapshot, right: Snapshot) -> None:
    """Give `right` up; what its gap reads from before `left` moves there."""
    for slot in right.slots:
        if trace.producer[slot] < left.position and slot not in left.slots:
            left.slots.add(slot)
        else:
            trace.held.release(slot)


def narrowest(trace: Trace, begin: int, end: int) -> tuple[int, int]:
    """The position in the second half of (begin, end] that the fewest bytes cross.

    Returns:
        The position, and how many of these bytes nothing holds any more: a snapshot
        there would have to be completed by recomputing from the one before it. They
        are as few as can be.
    """
    length = end - begin
    crossing, missing = [0] * (length + 2), [0] * (length + 2)
    for slot in range(trace.first_slot(begin), trace.first_slot(end)):
        made, read = trace.producer[slot], trace.last_read[slot]
        if made >= 0 and read > made:
            change = crossing if slot in trace.held.storages else missing
            change[made + 1 - begin] += trace.nbytes[slot]
            change[min(read, end) + 1 - begin] -= trace.nbytes[slot]
    lost, kept = list(accumulate(missing)), list(accumulate(crossing))
    second_half = range(length // 2 + 1, length + 1)
    best = min(second_half, key=lambda k: (lost[k], kept[k], -k), default=length)
    return begin + best, lost[best]

"""Place a snapshot of a running program, and choose the values in it."""

from collections.abc import Sequence
from itertools import accumulate

from retape.engines.eager.trace._step import Snapshot
from retape.engines.eager.trace._trace import Trace


def place_snapshot(trace: Trace, position: int) -> None:
    """Hold what was made before `position` and read at or after it."""
    opened = trace.snapshots[-1]
    slots = {slot for slot in opened.slots if trace.last_read[slot] >= position}
    made = range(trace.first_slot(opened.position), trace.first_slot(position))
    for slot in made:
        if trace.producer[slot] >= 0 and trace.last_read[slot] >= position:
            if slot in trace.held.storages:
                slots.add(slot)
    trace.held.again(slots)
    trace.opened = Snapshot(position, slots, trace.saved)
    trace.snapshots.append(trace.opened)


def put_away(trace: Trace, snapshots: Sequence[Snapshot]) -> None:
    """Move what complete snapshots hold into the store, if there is one.

    A snapshot is complete when the next one is placed.
    """
    if trace.held.elsewhere is not None:
        slots = {slot for snapshot in snapshots for slot in snapshot.slots}
        trace.held.elsewhere.put_away(slots - trace.tail.steps.keys())


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

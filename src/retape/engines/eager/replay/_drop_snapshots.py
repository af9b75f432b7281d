"""Drop the last snapshots before a gap is reversed, where that is cheaper.

The forward run, which does not know its end, leaves snapshots at about equal distances,
as many as fit. Where they leave little room a gap can only be reversed in short stages,
each recomputed from the gap's beginning: it may be much cheaper to give the last ones
up, and to plant new ones in the room that they leave, at binomial splits.
"""

from collections.abc import Sequence
from functools import lru_cache

from retape.schedule._binomial import optimal_advances

advances = lru_cache(maxsize=65536)(optimal_advances)
_FINER = 1.2
# Steps that a gap without room costs, so that sums and differences stay numbers.
_NEVER = 1e15


def snapshots_to_drop(
    gaps: Sequence[tuple[int, int]], widths: Sequence[int], room: float
) -> int:
    """The number of snapshots, counted from the last, without which it is cheapest.

    Args:
        gaps: For each snapshot, the bytes saved and the steps until the next one.
        widths: For each snapshot, the bytes that giving it up would free. The first
            one, the start, is never given up.
        room: Bytes free for recomputed values while all snapshots are there.

    Examples:
        Three gaps of a hundred steps that save a byte each. In three bytes the last
        one takes 34 stages from its beginning; all of them together are cheaper in
        the 23 bytes that there are without snapshots.

        >>> snapshots_to_drop([(100, 100)] * 3, [0, 10, 10], room=3)
        2
        >>> snapshots_to_drop([(100, 100)] * 3, [0, 10, 10], room=200)
        0
    """
    width = max(1.0, sum(widths) / max(1, len(widths) - 1))
    apart = min(_NEVER, gap_cost(*gaps[-1], room, width))
    best, chosen = 0.0, 0
    (saved, steps), free, following = gaps[-1], room, 1
    for drop in range(1, len(gaps)):
        own, length = gaps[-1 - drop]
        free += widths[-drop]
        saved, steps = saved + own, steps + length
        apart += min(_NEVER, gap_cost(own, length, free, width))
        # Numbers a quarter apart: looking at all would take as long as the sweep.
        if drop == following:
            following += max(1, drop // 4)
            saving = apart - gap_cost(saved, steps, free, width) if apart else 0.0
            if saving > best:
                best, chosen = saving, drop
    return chosen


def gap_cost(saved: int, steps: int, room: float, width: float) -> float:
    """Steps advanced without a tape to reverse a gap, about: the best stage length."""
    if saved <= room:
        return 0.0
    if room <= 0:
        return float("inf")
    best = float("inf")
    stages = -int(-saved // room)
    while stages <= steps:
        slots = 1 + int((room - saved / stages) / width)
        best = min(best, steps / stages * advances(stages, min(slots, stages)))
        stages = max(stages + 1, int(_FINER * stages))
    return best

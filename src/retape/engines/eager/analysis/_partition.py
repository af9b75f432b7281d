"""Partition of a recorded run into units, at narrow places.

A unit is the least that is taped or not. With units of a hundredth of all that autograd
saves, the optimum among them is near the optimum among operators. A cut where few bytes
cross costs little to store, so of the positions that would make two parts of a piece,
neither less than a quarter of it, the narrowest is taken: a network's blocks are found
without being named. Of equally narrow ones it is where least crosses that autograd has
not saved, since a tape and the state beside it have the rest in common: behind each
ReLU of a chain, where in front of it plans ran a third more again.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

from retape.engines.eager.analysis._uses import Uses
from retape.engines.eager.trace._trace import Trace


def cut_run(
    trace: Trace, uses: Uses, most: int, given: Iterable[int] = ()
) -> list[int]:
    """Positions of about `most` units, divided by the bytes that they save.

    Those that are given are among them.
    """
    length = uses.length
    saved_at = [0] * (length + 2)
    seen: set[int] = set()
    for step, slot in uses.saved:
        if slot not in seen:
            seen.add(slot)
            saved_at[step] += trace.nbytes[slot]
    sums = list(accumulate(saved_at, initial=0))
    size = max(1.0, sums[-1] / most)
    if not length:
        return [0]
    widths, ends = uses.widths(), sorted({0, *given, length})
    inner = (_divided(*each, sums, size, widths) for each in pairwise(ends))
    return sorted({*ends, *chain.from_iterable(inner)})


def _divided(
    begin: int, end: int, sums: Sequence[int], size: float, widths: Sequence[Any]
) -> list[int]:
    """Positions that cut a piece where few bytes cross, so that each part saves `size`.

    Examples:
        >>> _divided(0, 4, [0, 5, 10, 15, 20], 5, [0, 9, 3, 9, 0])
        [1, 2, 3]
    """
    cuts: list[int] = []
    stack = [(begin, end)]
    while stack:
        low, high = stack.pop()
        total = sums[high] - sums[low]
        if total < 2 * size:
            continue
        inner = [
            k
            for k in range(low + 1, high)
            if total <= 4 * (sums[k] - sums[low]) <= 3 * total
        ]
        if inner:
            best = min(inner, key=lambda k: widths[k])
            cuts.append(best)
            stack += [(low, best), (best, high)]
    return sorted(cuts)

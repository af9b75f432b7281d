"""Running sums of intervals: what is held at each position.

Every question about live bytes is this one: a value of so many bytes is made at one
position and read for the last time at another; how many bytes are alive in between?
"""

from collections.abc import Iterable
from itertools import accumulate


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

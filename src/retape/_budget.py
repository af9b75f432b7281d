"""From bytes to a stage length and a number of snapshots.

With a capsule of w bytes, r bytes of tape per step, d snapshots and stages of alpha
steps a run needs d*w + alpha*r bytes at its peak.
"""

from collections.abc import Callable
from math import isqrt

from ._bytes import format_bytes
from ._errors import BudgetError
from .schedule import binomial_counts

_SCAN = 2048


def stage_for_snapshots(d: int, w: int, r: int) -> int:
    """max(1, floor(2*d*w / r)): the tape gets twice the bytes of the snapshots.

    A longer stage saves advances and writes, and costs only tape: three times the bytes
    that the snapshots need anyway buy stages of 2*d*w/r steps.
    """
    return max(1, 2 * d * w // r) if r else 1 << 62


def stage_for_segments(n: int, w: int, r: int) -> int:
    """The alpha that minimises (N - 1)*w + alpha*r with N = ceil(n/alpha) stages.

    Chen's square root: about alpha = sqrt(n*w/r) and N = sqrt(n*r/w), one of which is
    at most sqrt(n). Rounding moves the peak by less than w (or r), and a distance of
    delta from the smaller one, m, moves it by n/m^3 times delta^2 as much: so the
    optimum is within sqrt(m^3/n), rounded up generously.
    """
    if w == 0 or r == 0:
        return n if r == 0 else 1
    by_length = n * w <= n * r
    root = isqrt(n * w // r if by_length else n * r // w)
    reach = 3 + 2 * isqrt((root + 1) ** 3 // n)
    near = range(max(1, min(root, n) - reach), min(n, root + reach) + 1)
    # The shortest stage for each number of stages.
    counts = [-(-n // m) for m in near] if by_length else list(near)
    stages = [-(-n // count) for count in counts]
    return min(stages, key=lambda alpha: ((-(-n // alpha) - 1) * w + alpha * r, -alpha))


def stage_for_sweeps(n: int, sweeps: int, w: int, r: int) -> int:
    """The alpha of least peak bytes among those with at most `sweeps` sweeps."""
    if sweeps == 1 or w == 0 or r == 0:
        return stage_for_segments(n, w, r)
    best, best_alpha, d, reach = n * r, n, 0, 1
    while d * w < best:
        d += 1
        reach = reach * (d + sweeps) // d
        alpha = -(-n // reach)
        peak = d * w + alpha * r
        if peak < best:
            best, best_alpha = peak, alpha
        if alpha == 1:
            break
    return best_alpha


def within_budget(n: int | None, w: int, r: int, budget: int) -> tuple[int, int]:
    """alpha and d with the fewest advances for which d*w + alpha*r <= budget.

    The advances are those of the binomial split; other splits get the same two numbers.

    For a given d the longest stage is (budget - d*w) // r, hence the least number N of
    stages, and the shortest stage for that N is ceil(n/N). Every d is tried while there
    are at most 2048; beyond, a geometric grid and then the neighbourhood of its best,
    which is not proved to hold the optimum.

    For an unknown n half of the budget goes to either: that maximises d*alpha, the
    longest run of which each step is advanced and taped only once.
    """
    least = least_for(n, w, r)
    if budget < least:
        raise BudgetError(
            f"`budget={budget}` bytes ({format_bytes(budget)}) cannot be kept: a "
            f"snapshot takes {w} and the tape of one step {r}. The least possible is "
            f"{least} bytes ({format_bytes(least)})."
        )
    if n is None:
        alpha = max(1, min(budget // 2, budget - w) // max(r, 1))
        return alpha, max(1, (budget - alpha * r) // max(w, 1))
    if n * r <= budget:
        return max(n, 1), 0
    most = min(n - 1, (budget - r) // w) if w else n - 1

    def stage(d: int) -> int:
        stages = -(-n // ((budget - d * w) // r))
        return -(-n // stages)

    def cost(d: int) -> tuple[int, int]:
        return binomial_counts(n, stage(d), d).advances, d

    best = _least_argument(cost, most)
    return stage(best), best


def least_for(n: int | None, w: int, r: int) -> int:
    """The least budget for n steps: one snapshot and a stage of one step, or no more
    than the whole tape."""
    return w + r if n is None else min(w + r, n * r)


def _least_argument(cost: Callable[[int], tuple[int, int]], most: int) -> int:
    if most <= _SCAN:
        return min(range(1, most + 1), key=cost)
    grid = {1, most}
    d = 1
    while d < most:
        grid.add(d)
        d += max(1, d // 64)
    middle = min(grid, key=cost)
    width = max(1, middle // 64)
    near = range(max(1, middle - width), min(most, middle + width) + 1)
    step = max(1, len(near) // _SCAN)
    return min([*near[::step], middle], key=cost)

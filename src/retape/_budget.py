"""From bytes to a stage length and a number of snapshots.

With a capsule of w bytes, r bytes of tape per step, d snapshots and stages of alpha
steps a run needs d*w + alpha*r bytes at its peak.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from math import isqrt

from ._bytes import format_bytes
from ._errors import BudgetError
from .schedule import optimal_advances


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
    stages, and the shortest stage for that N is ceil(n/N). The best d is found exactly,
    see `_Search`.

    For an unknown n half of the budget goes to either: that maximises d*alpha, the
    longest run of which each step is advanced and taped only once.
    """
    least = least_for(n, w, r)
    if budget < least:
        raise BudgetError(
            f"`budget={budget}` bytes ({format_bytes(budget)}) cannot be kept: a "
            f"snapshot takes {w} and the tape of one step {r}. The least possible is "
            f"{least} bytes ({format_bytes(least)}).",
            least,
        )
    if n is None:
        alpha = max(1, min(budget // 2, budget - w) // max(r, 1))
        return alpha, max(1, (budget - alpha * r) // max(w, 1))
    if n * r <= budget:
        return max(n, 1), 0
    most = min(n - 1, (budget - r) // w) if w else n - 1
    return _Search(n, w, r, budget).best(most)


def least_for(n: int | None, w: int, r: int) -> int:
    """The least budget for n steps: one snapshot and a stage of one step, or no more
    than the whole tape."""
    return w + r if n is None else min(w + r, n * r)


@dataclass(frozen=True, slots=True)
class _Search:
    """The d of least advances, and the least such d, by branch and bound.

    For d snapshots there are N(d) = ceil(n / ((budget - d*w) // r)) stages of
    ceil(n / N) steps. N grows with d. The fewest advances A(N, d) fall with d and grow
    with N, and so does A(N, d) / N, because A is convex in N. Hence for all d in
    [first, last], with N' = N(first) and N'' = N(last), the advances are at least

        max( ceil(n / N'') * A(N', last),  n * A(N', last) / N' ),

    since stage * N >= n. Intervals are halved, the one of least bound first, until no
    bound is below the best found.
    """

    n: int
    w: int
    r: int
    budget: int

    def best(self, most: int) -> tuple[int, int]:
        """alpha and d, over 1 <= d <= most."""
        best = self._cost(most)
        heap = [(self._bound(1, most), 1, most)]
        while heap and heap[0][:2] <= best:
            _, first, last = heappop(heap)
            if self._stages(first) == self._stages(last):
                best = min(best, self._flat(first, last))
                continue
            middle = (first + last) // 2
            best = min(best, self._cost(middle))
            for part in ((first, middle), (middle + 1, last)):
                bound = self._bound(*part)
                if (bound, part[0]) <= best:
                    heappush(heap, (bound, *part))
        return -(-self.n // self._stages(best[1])), best[1]

    def _stages(self, d: int) -> int:
        return -(-self.n // ((self.budget - d * self.w) // self.r))

    def _cost(self, d: int) -> tuple[int, int]:
        stages = self._stages(d)
        return -(-self.n // stages) * optimal_advances(stages, d), d

    def _bound(self, first: int, last: int) -> int:
        fewest, most = self._stages(first), self._stages(last)
        advances = optimal_advances(fewest, last)
        return max(-(-self.n // most) * advances, -(-self.n * advances // fewest))

    def _flat(self, first: int, last: int) -> tuple[int, int]:
        """The least d that costs as little as `last`, where all have as many stages."""
        cost, _ = self._cost(last)
        while first < last:
            middle = (first + last) // 2
            if self._cost(middle)[0] == cost:
                last = middle
            else:
                first = middle + 1
        return cost, first

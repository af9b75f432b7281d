"""The search of `within`: alpha and d with the fewest advances within some bytes.

With a capsule of w bytes, r bytes of tape per step, d snapshots and stages of alpha
steps a run needs d*w + alpha*r bytes at its peak.
"""

from dataclasses import dataclass
from heapq import heappop, heappush

from retape._bytes import format_bytes
from retape._errors import BudgetError
from retape.schedule._binomial import optimal_advances


def within_budget(n: int | None, w: int, r: int, budget: int) -> tuple[int, int]:
    """alpha and d with the fewest advances for which d*w + alpha*r <= budget.

    The advances are those of the binomial split; other splits get the same two numbers.

    The best pair is found exactly, see `_Search`.

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

    For d snapshots a stage has (budget - d*w) // r steps at most, and there are N(d) of
    that length at least. A shorter one may leave less of the last stage empty: 31 steps
    are 7 stages of 5 or 8 of 4. N(d) grows with d. The fewest advances A(N, d) fall
    with d and grow with N, and so does A(N, d) / N, because A is convex in N. Hence for
    all d in [first, last], with N' = N(first) and N'' = N(last), and all N >= N(d) the
    advances are at least n * A(N', last) / N', since stage * N >= n; and at least

        ceil(n / N'') * A(N', last)         if N <= N'',
        n * A(N'' + 1, last) / (N'' + 1)    otherwise.

    Intervals are halved, the one of least bound first, until no bound is below the best
    found.
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
        return best[2], best[1]

    def _stages(self, d: int) -> int:
        return -(-self.n // ((self.budget - d * self.w) // self.r))

    def _cost(self, d: int) -> tuple[int, int, int]:
        """The fewest advances for d snapshots, d, and the longest stage with them."""
        stages = self._stages(d)
        longest = -(-self.n // stages)
        least, alpha = longest * optimal_advances(stages, d), longest
        for shorter in range(longest - 1, 0, -1):
            stages = -(-self.n // shorter)
            advances = optimal_advances(stages, d)
            if self.n * advances >= least * stages:
                break
            if shorter * advances < least:
                least, alpha = shorter * advances, shorter
        return least, d, alpha

    def _bound(self, first: int, last: int) -> int:
        fewest, most = self._stages(first), self._stages(last)
        short = -(-self.n // most) * optimal_advances(fewest, last)
        more = -(-self.n * optimal_advances(most + 1, last) // (most + 1))
        least = -(-self.n * optimal_advances(fewest, last) // fewest)
        return max(least, min(short, more))

    def _flat(self, first: int, last: int) -> tuple[int, int, int]:
        """The least d that costs as little as `last`, where all have as many stages."""
        cost = self._cost(last)[0]
        while first < last:
            middle = (first + last) // 2
            if self._cost(middle)[0] == cost:
                last = middle
            else:
                first = middle + 1
        return self._cost(first)

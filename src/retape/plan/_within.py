"""The plan that keeps to a number of bytes, and its search.

With a capsule of w bytes, r bytes of tape per step, d snapshots and stages of alpha
steps a run needs d*w + alpha*r bytes at its peak.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import ClassVar

from retape._bytes import format_bytes, parse_bytes
from retape._errors import BudgetError, PlanError
from retape.plan._options import check_split, refuse_others
from retape.plan._prediction import Bytes
from retape.plan._tree_plan import TreePlan
from retape.schedule import Split, optimal_advances


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Within(TreePlan):
    """`retape.within`."""

    NAME: ClassVar[str] = "within"

    budget: int  # pyright: ignore[reportGeneralTypeIssues]  # required here

    def __repr__(self) -> str:
        whole = super(Within, self).__repr__()
        return whole.replace("budget=", "", 1)

    def _pick(self, n: int | None, both: Bytes | None) -> tuple[int, int]:
        if both is None:
            raise PlanError(
                f"`within({self.budget})` counts bytes, and neither `capsule_bytes` "
                "nor `tape_bytes` was given. Pass them, or a plan that counts "
                "snapshots, such as `fixed_space(snapshots=20)`."
            )
        return within_budget(n, *both, self.budget)


def within(
    budget: int | str,
    *,
    split: Split = "binomial",
    **others: object,
) -> Within:
    """A number of bytes to keep to, with as little work done again as that allows.

    It is a plan, and accepted wherever a budget is meant: as `plan=`, and as the
    `policy=` of `retape.jax.checkpoint` and of the loops.

    As a plan it chooses the stage length and the number of snapshots. Where the length
    of a run is not known, half of the bytes go to either.

    As a policy of `retape.jax` it chooses for the pieces of a function whether they are
    stored, run again but for their matrix products, or run again whole. Their gradients
    are compiled, by bisection, and the cheapest whose temporaries keep to the budget by
    the compiler's own figure is taken: that of `jax.jit(jax.grad(f))`, by the arguments
    that the gradient is taken by. Arguments, gradients and the value are not counted.
    This takes some compilations when a derivative is taken (about ten of each function;
    the same function is not searched again), and a larger budget never leads to more
    work. Under an outer `vmap`, or as a part of a larger program, the figure is that of
    the function alone.

    Args:
        budget: Bytes, or a text such as "512 MiB". Snapshots and the tape of a stage
            share it.
        split: Where intervals are cut.
        **others: None; an option of another plan is refused by name.

    Raises:
        PlanError: If `budget` is no number of bytes, or an option cannot be, or is
            another plan's.
        BudgetError: When the plan is used, if the budget is below the least possible,
            which is named.

    Examples:
        >>> import retape
        >>> retape.within("1 kB").resolve(1000, capsule_bytes=10, tape_bytes=20)
        Resolved(alpha=36, d=27, t=1)
    """
    if others.get("offload") is not None:
        raise PlanError(
            f"`offload={others['offload']!r}` is not an option of `within`: a budget "
            "is shared by all that a gradient holds, and what is on the host is none "
            "of it. Pass a number of snapshots, such as `fixed_space(snapshots=20, "
            "offload='host')`."
        )
    refuse_others("within", {k: v for k, v in others.items() if k != "offload"})
    return Within(budget=parse_bytes(budget), split=check_split(split))


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
    budget: int  # pyright: ignore[reportGeneralTypeIssues]  # required here

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

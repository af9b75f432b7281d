"""Split rules of an interval: binomial, bisection and the paper's treeverse.

As policies they make the divide-and-conquer schedules, which keep states only.

A rule is given the length of an interval in stages, two at least, the snapshots it may
use (the one at its start included) and the sweeps left, and returns how many stages to
advance before the next snapshot. It is written in the operations of `Numbers`: a sweep
that JAX compiles is steered by the same rules.
"""

from functools import lru_cache
from typing import Any, Literal, TypeAlias

from retape.schedule._binomial import INTEGERS, Numbers, least_sweeps
from retape.schedule._policy_stream import Held

Split: TypeAlias = Literal["binomial", "bisection", "treeverse"]
"""The ways to cut an interval of stages."""


def binomial_split(
    stages: Any, snapshots: Any, sweeps: Any = None, numbers: Numbers = INTEGERS
) -> Any:
    """The split with the fewest advances and, among those, the fewest stores.

    With s snapshots, L >= 2 stages and t the least number with beta(s, t) >= L, found
    by the recurrence beta(s, t) = beta(s, t-1) * (s + t) / t from beta(s, 0) = 1:

        s = 1:                                  L - 1
        L <= beta(s, t-1) + beta(s-2, t-1):     max(1, beta(s, t-2))
        L >= beta(s, t) - beta(s-3, t):         beta(s, t-1)
        otherwise:                              L - beta(s-1, t-1) - beta(s-2, t-1)

    where beta with a negative argument is 0. All of them follow from beta(s, t) by
    exact divisions, each from the one before, and the first case from the others. No
    product on the way exceeds L * (s + t)^2 / t. This is the rule of Algorithm 799
    (Griewank and Walther 2000).

    Raises:
        PlanError: If a count is no integer, or cannot be.

    Examples:
        >>> binomial_split(10, 3)
        4
    """
    del sweeps
    s, over, where = snapshots, numbers.over, numbers.where
    t, reach = numbers.sweeps(stages, s)
    full = over(reach * t, s + t)  # beta(s, t-1)
    right = over(full * s, s + t - 1)  # beta(s-1, t-1)
    # beta(s-2, t-1); one snapshot and one sweep would make it 0 / 0.
    spare = over(right * (s - 1), numbers.at_least(s + t - 2, 1))
    slack = over(spare * (s - 2), t)  # beta(s-3, t)
    least = numbers.at_least(over(right * (t - 1), s), 1)  # beta(s, t-2)
    between = where(stages >= reach - slack, full, stages - right - spare)
    return where(stages <= full + spare, least, between)


def bisection_split(
    stages: Any, snapshots: Any, sweeps: Any = None, numbers: Numbers = INTEGERS
) -> Any:
    """Half the interval, rounded up; all but the last stage if no slot is left.

    [9, eq. (12)] of the paper. With enough snapshots the advances satisfy
    B(L) = ceil(L/2) + B(floor(L/2)) + B(ceil(L/2)).

    Examples:
        >>> bisection_split(9, 3)
        5
    """
    del sweeps
    return numbers.where(snapshots == 1, stages - 1, numbers.over(stages + 1, 2))


@lru_cache(maxsize=4096)
def bisection_sweeps(stages: int, snapshots: int) -> int:
    """The most times that a bisection advances one stage.

    A left branch advances its interval once more, and an interval with a single slot
    is re-run once for each stage but the last. The depth is log2(stages).

    Examples:
        >>> bisection_sweeps(1000, 10)
        10
    """
    if stages <= 1 or snapshots == 1:
        return max(0, stages - 1)
    left = 1 + bisection_sweeps((stages + 1) // 2, snapshots)
    return max(left, bisection_sweeps(stages // 2, snapshots - 1))


def treeverse_split(
    stages: Any, snapshots: Any, sweeps: Any, numbers: Numbers = INTEGERS
) -> Any:
    """Treeverse's own split, ceil(tau * L / (delta + tau)), and at most L - 1.

    [9, eq. (16)] of the paper, kappa = ceil((delta*sigma + tau*phi) / (delta + tau)),
    less sigma. It is optimal at L = beta(delta, tau) and up to 30% off elsewhere. Where
    tau is ample for a short interval the quotient reaches L, which would leave the
    right branch no steps; the split is then the last possible one.

    Examples:
        >>> treeverse_split(10, 3, 2)
        4
    """
    both = snapshots + sweeps
    cut = numbers.over(sweeps * stages + both - 1, both)
    return numbers.at_most(stages - 1, cut)


RULES: dict[Split, Any] = {
    "binomial": binomial_split,
    "bisection": bisection_split,
    "treeverse": treeverse_split,
}


# The same few are asked for again and again: half of a stream's time.


@lru_cache(maxsize=4096)
def _binomial(stages: int, room: int) -> Held[int]:
    # The slot of the start counts among those that the rule is given.
    return Held("memory", False, room, binomial_split(stages, room + 1))


@lru_cache(maxsize=4096)
def _halves(stages: int, room: int) -> Held[int]:
    return Held("memory", False, room, bisection_split(stages, room + 1))


@lru_cache(maxsize=4096)
def _treeverse(stages: int, slots: int, sweeps: int) -> Held[tuple[int, int]]:
    split = treeverse_split(stages, slots + 1, sweeps)
    return Held("memory", False, (slots, sweeps), split)


class BinomialPolicy:
    """Cuts at the binomial split. What is free is a number of slots."""

    _cut = staticmethod(_binomial)

    def keep(self, lo: int, hi: int, room: int) -> Held[int]:
        """The state, always."""
        return self._cut(hi - lo, room - 1)

    def after_read(self, lo: int, hi: int, held: Held[int]) -> Held[int]:
        """It stays until its own stage is reversed."""
        return self._cut(hi - lo, held.room)

    def is_alone(self, held: Held[int]) -> bool:
        """Tell whether no other slot is free."""
        return not held.room


class BisectionPolicy(BinomialPolicy):
    """Halves."""

    _cut = staticmethod(_halves)


class TreeversePolicy:
    """Cuts at the paper's split. What is free is (slots, sweeps)."""

    def keep(self, lo: int, hi: int, room: tuple[int, int]) -> Held[tuple[int, int]]:
        """The state, always."""
        slots, sweeps = room
        return _treeverse(hi - lo, slots - 1, sweeps)

    def after_read(
        self, lo: int, hi: int, held: Held[tuple[int, int]]
    ) -> Held[tuple[int, int]]:
        """One sweep less is left for the stages before the split."""
        slots, sweeps = held.room
        return _treeverse(hi - lo, slots, sweeps - 1)

    def is_alone(self, held: Held[tuple[int, int]]) -> bool:
        """Tell whether no other slot is free."""
        return not held.room[0]


def split_policy(split: Split, stages: int, snapshots: int) -> tuple[Any, Any]:
    """The policy of a split, and what is free at the beginning of a run."""
    if split == "treeverse":
        sweeps = least_sweeps(stages, snapshots) if stages > 1 else 0
        return TreeversePolicy(), (snapshots, sweeps)
    policy = BisectionPolicy() if split == "bisection" else BinomialPolicy()
    return policy, snapshots

"""Split rules of an interval: binomial, bisection and the paper's treeverse.

As policies they make the divide-and-conquer schedules, which keep states only.

A rule is given the length of an interval in stages, the snapshots it may use (the one
at its start included) and the sweeps left, and returns how many stages to advance
before the next snapshot.
"""

from functools import lru_cache
from typing import Any, Literal, TypeAlias

from retape.schedule._binomial import beta, least_sweeps
from retape.schedule._policy_stream import Held

Split: TypeAlias = Literal["binomial", "bisection", "treeverse"]
"""The ways to cut an interval of stages."""


def binomial_split(stages: int, snapshots: int) -> int:
    """The split with the fewest advances and, among those, the fewest stores.

    With s snapshots, L >= 2 stages and t the least number with beta(s, t) >= L, found
    by the recurrence beta(s, t) = beta(s, t-1) * (s + t) / t from beta(s, 0) = 1:

        s = 1:                                  L - 1
        L <= beta(s, t-1) + beta(s-2, t-1):     max(1, beta(s, t-2))
        L >= beta(s, t) - beta(s-3, t):         beta(s, t-1)
        otherwise:                              L - beta(s-1, t-1) - beta(s-2, t-1)

    where beta with a negative argument is 0. All of them follow from b = beta(s, t) by
    exact divisions: beta(s, t-1) = b*t/(s+t), beta(s-1, t-1) = beta(s, t-1)*s/(s+t-1),
    beta(s-2, t-1) = beta(s-1, t-1)*(s-1)/(s+t-2), and beta(s, t-2) =
    beta(s-1, t-1)*(t-1)/s. No product on the way exceeds L * (s + t)^2 / t. This is the
    rule of Algorithm 799 (Griewank and Walther 2000).

    Raises:
        PlanError: If a count is no integer, or cannot be.

    Examples:
        >>> binomial_split(10, 3)
        4
    """
    s, n = snapshots, stages
    if s == 1:
        return n - 1
    t = least_sweeps(n, s)
    if n <= beta(s, t - 1) + beta(s - 2, t - 1):
        return max(1, beta(s, t - 2))
    if n >= beta(s, t) - beta(s - 3, t):
        return beta(s, t - 1)
    return n - beta(s - 1, t - 1) - beta(s - 2, t - 1)


def bisection_split(stages: int, snapshots: int) -> int:
    """Half the interval, rounded up; all but the last stage if no slot is left.

    [9, eq. (12)] of the paper. With enough snapshots the advances satisfy
    B(L) = ceil(L/2) + B(floor(L/2)) + B(ceil(L/2)).

    Examples:
        >>> bisection_split(9, 3)
        5
    """
    return stages - 1 if snapshots == 1 else (stages + 1) // 2


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


def treeverse_split(stages: int, snapshots: int, sweeps: int) -> int:
    """Treeverse's own split, ceil(tau * L / (delta + tau)), and at most L - 1.

    [9, eq. (16)] of the paper, kappa = ceil((delta*sigma + tau*phi) / (delta + tau)),
    less sigma. It is optimal at L = beta(delta, tau) and up to 30% off elsewhere. Where
    tau is ample for a short interval the quotient reaches L, which would leave the
    right branch no steps; the split is then the last possible one.

    Examples:
        >>> treeverse_split(10, 3, 2)
        4
    """
    return min(stages - 1, -(-sweeps * stages // (snapshots + sweeps)))


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

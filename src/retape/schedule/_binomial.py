"""beta(d, t), its inverses, and the closed forms of the optimal counts."""

from collections.abc import Callable
from functools import lru_cache
from math import comb
from typing import Any, NamedTuple

from retape._errors import PlanError


def beta(d: int, t: int) -> int:
    """C(d + t, d): the most stages that d snapshots and t sweeps can reverse.

    The paper writes eta(d, t), eq. (23). It is 0 where either argument is negative.

    Examples:
        >>> beta(3, 2)
        10
    """
    return comb(d + t, d) if d >= 0 and t >= 0 else 0


def least_sweeps(stages: int, snapshots: int) -> int:
    """The least t with beta(snapshots, t) >= stages (`snapshots` >= 1).

    Raises:
        PlanError: If a count is no integer, or cannot be.

    Examples:
        >>> least_sweeps(10, 3)
        2
    """
    if snapshots < 1 and stages > 1:
        raise PlanError(
            f"{stages} stages cannot be reversed with {snapshots} snapshots (or "
            "sweeps). Pass at least one."
        )
    if snapshots == 1:
        return max(0, stages - 1)
    t, reach = 0, 1
    while reach < stages:
        if t == _SMALL:
            return _large_sweeps(stages, snapshots)
        t += 1
        reach = reach * (snapshots + t) // t
    return t


_SMALL = 256
"""The most sweeps that are found one after another; more are found by bisection."""


def _large_sweeps(stages: int, snapshots: int) -> int:
    """`least_sweeps` by bisection: few snapshots and 10^30 stages take 10^10 sweeps."""
    low, high = 0, 2 * _SMALL
    while not reaches(snapshots, high, stages):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if reaches(snapshots, middle, stages):
            high = middle
        else:
            low = middle
    return high


def reaches(d: int, t: int, stages: int) -> bool:
    """Tell whether beta(d, t) >= stages, in O(log(stages)) multiplications.

    C(m - k + i, i) for i = 0, ..., k = min(d, t) and m = d + t ends in beta(d, t), and
    at least doubles at each step, as (m - k + i) / i >= 2 where i <= k <= m / 2.

    Examples:
        >>> reaches(3, 2, 10), reaches(3, 2, 11)
        (True, False)
    """
    reach, rest = 1, max(d, t)
    for i in range(1, min(d, t) + 1):
        if reach >= stages:
            return True
        reach = reach * (rest + i) // i
    return reach >= stages


def least_snapshots(stages: int, sweeps: int) -> int:
    """The least d with beta(d, sweeps) >= stages (`sweeps` >= 1).

    beta is symmetric, so this is `least_sweeps` with its arguments' parts exchanged.

    Raises:
        PlanError: If a count is no integer, or cannot be.

    Examples:
        >>> least_snapshots(1000, 3)
        17
    """
    return least_sweeps(stages, sweeps)


class Numbers(NamedTuple):
    """The operations in which the rules of a schedule are written, once for all.

    `INTEGERS` are Python's. A controller in a compiled program has its framework's,
    whose results cannot be looked at: so a rule computes every case, and one is chosen.
    """

    where: Callable[[Any, Any, Any], Any]
    at_least: Callable[[Any, Any], Any]
    at_most: Callable[[Any, Any], Any]
    over: Callable[[Any, Any], Any]
    """`a // b`, neither of them negative."""
    sweeps: Callable[[Any, Any], tuple[Any, Any]]
    """For L stages and s snapshots the least t with beta(s, t) >= L; and that beta."""


def _sweeps_and_reach(stages: int, snapshots: int) -> tuple[int, int]:
    t = least_sweeps(stages, snapshots)
    return t, beta(snapshots, t)


def _where(truth: Any, yes: Any, no: Any) -> Any:
    return yes if truth else no


INTEGERS = Numbers(_where, max, min, int.__floordiv__, _sweeps_and_reach)


def advances(stages: Any, snapshots: Any, numbers: Numbers) -> Any:
    """A(L, s), the least number of stages to advance when L are reversed.

    t * L - beta(s + 1, t - 1), with the least t such that beta(s, t) >= L (Griewank
    1992; C(s + t, t - 1) = beta(s + 1, t - 1) = beta(s, t) * t / (s + 1)).
    """
    t, reach = numbers.sweeps(stages, snapshots)
    return t * stages - numbers.over(reach * t, snapshots + 1)


def least_balanced(stages: int) -> int:
    """The least k with beta(k, k) >= stages: logarithmic space and time.

    Examples:
        >>> least_balanced(1000), beta(7, 7)
        (7, 3432)
    """
    k = 0
    while beta(k, k) < stages:
        k += 1
    return k


@lru_cache(maxsize=1 << 16)
def optimal_advances(stages: int, snapshots: int) -> int:
    """`advances` of integers, kept: a placement asks for few, again and again.

    Raises:
        PlanError: If a count is no integer, or cannot be.

    Examples:
        >>> optimal_advances(1000, 9)
        3999
    """
    return advances(stages, snapshots, INTEGERS) if stages > 1 else 0


def least_stores(stages: int, snapshots: int) -> int:
    """The least number of stores among schedules with the least advances.

    max(beta(s-1, t-1), stages - beta(s, t-1)), the store of the start state included;
    none for a single stage, one for a single snapshot.

    Raises:
        PlanError: If a count is no integer, or cannot be.

    Examples:
        >>> least_stores(1000, 9)
        495
    """
    if stages <= 1:
        return 0
    if snapshots == 1:
        return 1
    t = least_sweeps(stages, snapshots)
    return max(beta(snapshots - 1, t - 1), stages - beta(snapshots, t - 1))

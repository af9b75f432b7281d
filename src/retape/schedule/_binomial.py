"""beta(d, t), its inverses, and the closed forms of the optimal counts."""

from math import comb


def beta(d: int, t: int) -> int:
    """C(d + t, d): the most stages that d snapshots and t sweeps can reverse.

    The paper writes eta(d, t), eq. (23). It is 0 where either argument is negative.

    Example:
        >>> beta(3, 2)
        10
    """
    return comb(d + t, d) if d >= 0 and t >= 0 else 0


def least_sweeps(stages: int, snapshots: int) -> int:
    """The least t with beta(snapshots, t) >= stages (`snapshots` >= 1).

    Example:
        >>> least_sweeps(10, 3)
        2
    """
    if snapshots == 1:
        return max(0, stages - 1)
    t, reach = 0, 1
    while reach < stages:
        t += 1
        reach = reach * (snapshots + t) // t
    return t


def least_snapshots(stages: int, sweeps: int) -> int:
    """The least d with beta(d, sweeps) >= stages (`sweeps` >= 1).

    beta is symmetric, so this is `least_sweeps` with its arguments' parts exchanged.
    """
    return least_sweeps(stages, sweeps)


def least_balanced(stages: int) -> int:
    """The least k with beta(k, k) >= stages: logarithmic space and time."""
    k = 0
    while beta(k, k) < stages:
        k += 1
    return k


def optimal_advances(stages: int, snapshots: int) -> int:
    """The least number of stages to advance when `stages` are reversed.

    t * stages - beta(snapshots + 1, t - 1), with the least t such that
    beta(snapshots, t) >= stages (Griewank 1992; C(s + t, t - 1) = beta(s + 1, t - 1)).

    Example:
        >>> optimal_advances(1000, 9)
        3999
    """
    if stages <= 1:
        return 0
    t = least_sweeps(stages, snapshots)
    return t * stages - beta(snapshots + 1, t - 1)


def least_stores(stages: int, snapshots: int) -> int:
    """The least number of stores among schedules with the least advances.

    max(beta(s-1, t-1), stages - beta(s, t-1)), the store of the start state included;
    none for a single stage, one for a single snapshot.
    """
    if stages <= 1:
        return 0
    if snapshots == 1:
        return 1
    t = least_sweeps(stages, snapshots)
    return max(beta(snapshots - 1, t - 1), stages - beta(snapshots, t - 1))

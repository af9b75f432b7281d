"""Optima found without any of the theory that the library uses."""

from fractions import Fraction
from functools import cache
from itertools import combinations


@cache
def best_split(stages: int, snapshots: int) -> tuple[int, int]:
    """(advances, stores) minimised in that order over all first splits."""
    if stages == 1:
        return 0, 0
    if snapshots == 1:
        return stages * (stages - 1) // 2, 1
    best = None
    for i in range(1, stages):
        right = best_split(stages - i, snapshots - 1)
        left = best_split(i, snapshots)
        cost = (
            i + right[0] + left[0],
            1 + right[1] + max(0, left[1] - 1),
        )
        best = cost if best is None else min(best, cost)
    assert best is not None
    return best


def best_over_positions(
    positions: tuple[int, ...], last: int, snapshots: int, cost
) -> int:
    """The least cost of reversing below `last` over any subset of given snapshots."""
    best = None
    for size in range(len(positions)):
        for chosen in combinations(positions[1:], size):
            ends = (*chosen, last)
            starts = (positions[0], *chosen)
            total = sum(
                cost(end - at, snapshots - i)
                for i, (at, end) in enumerate(zip(starts, ends, strict=True))
            )
            best = total if best is None else min(best, total)
    assert best is not None
    return best


def last_policy(snapshots: int, ratio: Fraction, longest: int) -> int:
    """The length up to which some online policy stays within a ratio to the optimum.

    A policy that does not know the end is told nothing but that it has not come, so it
    is a path through sets of positions: `longest`, if one goes on for so long.
    """

    def cost(stages: int, slots: int) -> int:
        return best_split(stages, slots)[0] if stages else 0

    reached = {(0,)}
    for n in range(2, longest + 1):
        most, stage = ratio * best_split(n, snapshots)[0], n - 2
        options = set(reached)
        for held in reached if stage else ():
            if len(held) < snapshots:
                options.add((*held, stage))
            else:
                options |= {
                    (*held[:j], *held[j + 1 :], stage) for j in range(1, len(held))
                }
        reached = {
            held
            for held in options
            if n - 1 + best_over_positions(held, n - 1, snapshots, cost) <= most
        }
        if not reached:
            return n - 1
    return longest

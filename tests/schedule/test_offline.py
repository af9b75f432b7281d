"""Schedules of known length against brute force, closed forms and each other."""

import tracemalloc
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retape.schedule import Schedule, replay
from tests.schedule.brute import best_split
from tests.schedule.numbers import (
    beta,
    first_split,
    least_balanced,
    least_snapshots,
    least_stores,
    least_sweeps,
    optimal_advances,
    treeverse_split,
)
from tests.schedule.papers_tree import binary, treeverse


@pytest.mark.parametrize("snapshots", range(1, 9))
def test_binomial_has_the_fewest_advances_and_then_the_fewest_stores(snapshots):
    for n in range(1, 61):
        counts = replay(Schedule(n, snapshots), n, capacity=snapshots, stage=1)
        assert (counts.advances, counts.stores) == best_split(n, snapshots)


@pytest.mark.parametrize("mid", ["binomial", "bisection"])
def test_the_papers_two_programs_are_one(mid):
    for n in [*range(0, 26), 64, 101]:
        for alpha, d, t in [(1, 2, 3), (4, 3, 3), (1, 8, 2), (3, 0, 5), (2, 5, 0)]:
            tree = list(treeverse(0, n, alpha, d, t, mid))
            assert tree == list(binary(0, n, alpha, d, t, mid))
            replay(tree, n, capacity=d)


@pytest.mark.parametrize("stage", [1, 3])
def test_a_schedule_is_the_papers_program_action_by_action(stage):
    """Where neither count comes down to zero above a single stage."""
    for snapshots in range(1, 9):
        for stages in range(1, 50):
            n, t = stages * stage, least_sweeps(stages, snapshots)
            want = treeverse(0, stages, 1, snapshots, t, "binomial")
            assert list(Schedule(n, snapshots, stage, "treeverse")) == [
                scaled(action, stage) for action in want
            ]
            deep = treeverse(0, stages, 1, 9, 9, "bisection")
            assert list(Schedule(n, 9, stage, "bisection")) == [
                scaled(action, stage) for action in deep
            ]


def scaled(action, stage):
    """The same action in steps, where it was in stages."""
    steps = {"start", "stop", "step"} & set(action._fields)
    return action._replace(**{name: stage * getattr(action, name) for name in steps})


def test_published_counts():
    assert Schedule(1000, 9).counts().advances == 3999
    bisected = Schedule(1000, 20, split="bisection").counts()
    assert (bisected.advances, bisected.peak_snapshots) == (5044, 9)
    assert replay(treeverse(0, 10, 1, 8, 2, "binomial"), 10).advances == 13
    assert Schedule(10, 8).counts().advances == 10
    assert Schedule(1000, 1).counts().advances == 1000 * 999 // 2


def test_treeverse_is_optimal_where_the_length_is_a_binomial():
    for d, t in [(2, 3), (3, 3), (4, 2), (1, 5), (6, 1)]:
        n = beta(d, t)
        assert Schedule(n, d, split="treeverse").counts().advances == (
            optimal_advances(n, d)
        )


def test_inverses_are_least():
    for n in range(1, 200):
        for k in range(1, 9):
            t = least_sweeps(n, k)
            assert beta(k, t) >= n and (t == 0 or beta(k, t - 1) < n)
            d = least_snapshots(n, k)
            assert beta(d, k) >= n and (d == 0 or beta(d - 1, k) < n)
        b = least_balanced(n)
        assert beta(b, b) >= n and (b == 0 or beta(b - 1, b - 1) < n)


@given(st.integers(2, 10**12), st.integers(2, 60))
def test_the_binomial_split_of_huge_intervals_satisfies_the_recurrence(n, s):
    i = first_split("binomial", n, s)
    parts = optimal_advances(i, s) + optimal_advances(n - i, s - 1)
    assert optimal_advances(n, s) == i + parts
    right = least_stores(n - i, s - 1)
    assert least_stores(n, s) == 1 + right + max(0, least_stores(i, s) - 1)


@given(st.integers(2, 10**9), st.integers(1, 40), st.integers(1, 40))
def test_splits_are_inside_the_interval(n, d, t):
    assert 1 <= treeverse_split(n, d, t) <= n - 1
    assert 1 <= first_split("bisection", n, d) <= n - 1
    assert 1 <= first_split("binomial", n, d) <= n - 1


def test_huge_counts_are_exact():
    n = 10**30
    counts = Schedule(n, 10).counts()
    t = least_sweeps(n, 10)
    assert counts.advances == t * n - beta(11, t - 1)
    assert counts.reverses == n


def test_a_schedule_streams_in_memory_of_its_snapshots():
    tracemalloc.start()
    try:
        for _ in islice(Schedule(10**15, 12), 20_000):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 400_000


def test_a_long_comb_needs_no_recursion():
    assert sum(1 for _ in Schedule(3000, 1)) == 1 + 3000 + 2999 + 2999 + 1
    chain = Schedule(3000, 2999, split="treeverse")
    assert replay(chain, 3000) == chain.counts()

"""What is passed to schedules: numbers of any size and kind, and what is none."""

import signal
from contextlib import contextmanager

import numpy as np
import pytest

import retape
from retape import StepCosts, Tier
from retape.schedule import Chain, Hierarchy, Mixed, OnlineBinomial, Schedule
from tests.schedule.numbers import beta, least_sweeps

HUGE = 10**30


@contextmanager
def bounded(seconds=60):
    """A loop over 10^10 numbers ends in an error, and not in a night."""

    def stop(*_):
        raise AssertionError("it takes too long")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("snapshots", [2, 3, 4, 7, 40, 10**9])
def test_the_least_sweeps_of_huge_runs_are_the_least(snapshots):
    with bounded():
        for stages in (10**6, 10**12 + 1, HUGE, HUGE**3):
            t = least_sweeps(stages, snapshots)
            assert beta(snapshots, t) >= stages > beta(snapshots, t - 1)


def test_bisection_and_recurrence_agree_where_one_takes_over():
    for t in range(250, 262):
        for stages in (beta(2, t), beta(2, t) + 1, beta(3, t), beta(3, t) + 1):
            for d in (2, 3):
                found = least_sweeps(stages, d)
                assert beta(d, found) >= stages > beta(d, found - 1)


def test_segments_of_a_huge_run_are_near_the_least():
    with bounded():
        alpha, d, _ = retape.segments().resolve(HUGE, 7, 11)
    peak = d * 7 + alpha * 11
    # (N - 1) w + alpha r is at least 2 sqrt(n w r) - w.
    assert peak**2 * 10**6 <= 4 * HUGE * 77 * (10**6 + 1)


NUMPYS = [np.int8, np.int32, np.int64, np.uint64]


@pytest.mark.parametrize("kind", NUMPYS)
def test_numpys_integers_are_as_good_as_pythons(kind):
    n, s = kind(100), kind(3)
    pairs = [
        (Schedule(n, s, kind(2)), Schedule(100, 3, 2)),
        (
            Hierarchy(n, [Tier("a", s, read=np.float32(0.5)), Tier("b", kind(2))]),
            Hierarchy(100, [Tier("a", 3, read=0.5), Tier("b", 2)]),
        ),
        (Mixed(n, s), Mixed(100, 3)),
        (
            Chain(np.ones(3), np.array([1, 2, 3], kind), [kind(2)] * 3, kind(5)),
            Chain([1] * 3, [1, 2, 3], [2] * 3, 5),
        ),
    ]
    for one, other in pairs:
        assert one == other and repr(one) == repr(other)
        assert one.counts() == other.counts()
        assert repr(one.counts()) == repr(other.counts())
    assert repr(OnlineBinomial(s, kind(1))) == repr(OnlineBinomial(3))
    assert repr(OnlineBinomial(s).advances(n)) == repr(OnlineBinomial(3).advances(100))


@pytest.mark.parametrize(
    "make",
    [
        lambda i: retape.fixed_space(snapshots=i(5)),
        lambda i: retape.fixed_time(sweeps=i(3)),
        lambda i: retape.segments(stage=i(7)),
        lambda i: retape.within(i(10**9)),
        lambda i: retape.tiers(memory=i(3), disk=i(4)),
        lambda i: retape.tiers(memory="1 MB", disk="1 MB"),
        lambda i: retape.fixed_space(snapshots=i(5), store={"state", "tape"}),
    ],
)
def test_a_plan_of_numpys_integers_does_not_overflow(make):
    n, w, r = 3 * 10**3, 10**6, 3 * 10**5
    one = make(np.int32).predict(np.int32(n), np.int32(w), np.int32(r))
    assert repr(one) == repr(make(int).predict(n, w, r))


def test_a_cost_of_numpys_is_pythons():
    assert type(StepCosts(np.float32(1)).forward) is float


def test_the_stage_of_many_snapshots_is_near_the_least():
    """Where snapshots are too many to be tried one after another."""
    for n, t, w, r in [(10**15, 2, 3, 1000), (10**17, 3, 1, 10**4), (10**30, 3, 7, 5)]:
        with bounded():
            alpha, d, _ = retape.fixed_time(sweeps=t).resolve(n, w, r)
        peak = d * w + alpha * r
        for other in (alpha * 99 // 100, alpha * 101 // 100, alpha // 2, 2 * alpha):
            if 1 <= other != alpha:
                fewest = retape.fixed_time(sweeps=t, stage=other).resolve(n, w, r).d
                assert peak <= fewest * w + other * r + r

"""What is passed to schedules: numbers of any size and kind, and what is none."""

import signal
from contextlib import contextmanager

import numpy as np
import pytest

import retape
from retape import PlanError, ScheduleError, StepCosts, Tier
from retape.schedule import Chain, Hierarchy, Mixed, OnlineBinomial, Schedule, replay
from tests.schedule.numbers import beta, least_sweeps, optimal_advances

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


def test_a_run_whose_intervals_are_too_many_to_count_is_refused():
    with bounded(), pytest.raises(PlanError, match="different intervals"):
        retape.fixed_space(snapshots=3, split="treeverse").predict(HUGE)


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
            Hierarchy(n, [Tier("a", s), Tier("b", kind(2))]),
            Hierarchy(100, [Tier("a", 3), Tier("b", 2)]),
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


@pytest.mark.parametrize("wrong", [10.0, "10", None, True, [1], np.float64(10)])
def test_what_is_no_count_is_named(wrong):
    for call in (
        lambda: Schedule(wrong, 3),
        lambda: Hierarchy(wrong, [Tier("a", 3)]),
        lambda: Mixed(10, wrong),
        lambda: retape.fixed_space(snapshots=3).predict(wrong),
        lambda: retape.tiers(memory=1, disk=1).predict(wrong),
        lambda: OnlineBinomial(wrong),
    ):
        with pytest.raises(PlanError, match="is not an integer. Counts of steps, sta"):
            call()
    with pytest.raises(PlanError, match="`tape_bytes=.*` is not an integer"):
        retape.fixed_space(snapshots=3).predict(10, 8, wrong if wrong else 2.5)


@pytest.mark.parametrize("name", ["foo", [], None, "Binomial"])
def test_an_unknown_split_or_placement_is_named(name):
    with pytest.raises(PlanError, match="`split=.*` is not known. Pass one of"):
        Schedule(10, 3, split=name)
    with pytest.raises(PlanError, match="`placement=.*` is not known. Pass 'least-c"):
        OnlineBinomial(3, 1, name)


@pytest.mark.parametrize("wrong", ["a", None, [1.0], float("nan"), -1, float("inf")])
def test_what_is_no_cost_is_named(wrong):
    with pytest.raises(
        PlanError, match="`(read|tape)=.*` cannot be a cost. Pass a num"
    ):
        Tier("disk", 3, read=wrong)
    with pytest.raises(PlanError, match="`tape=.*` cannot be a cost. Pass a number"):
        StepCosts(tape=wrong)


def test_a_cost_of_numpys_is_pythons():
    assert type(StepCosts(np.float32(1)).forward) is float


@pytest.mark.parametrize(
    ("forward", "states"), [("ab", [1, 1]), ([1, 2], [1.5, 1]), ([None, 1], [1, 1])]
)
def test_what_is_no_chain_is_named(forward, states):
    with pytest.raises(PlanError, match="are not valid: pass three sequences"):
        Chain(forward, states, [1, 1], 6)
    with pytest.raises(PlanError, match="are not valid: pass three sequences with one"):
        retape.chain(forward=1, states=[1], tapes=[1], budget=6)


def test_no_snapshots_reverse_nothing():
    with pytest.raises(PlanError, match="`snapshots=0` is not valid: it counts"):
        optimal_advances(10, 0)


def test_what_is_no_action_is_named():
    with pytest.raises(
        ScheduleError, match="action 1, `7`, is not an action of `retape.s"
    ):
        replay([*list(Schedule(1, 0))[:0], retape.schedule.Reverse(0, 0), 7], 0)


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

"""Slots that hold states or tapes, against searches and the peer's own numbers."""

import pytest

from retape.schedule import Mixed, replay
from tests.schedule.numbers import optimal_advances


def test_the_advances_are_those_of_the_peer():
    peer = pytest.importorskip("checkpoint_schedules.mixed")
    for n in range(1, 41):
        for snapshots in range(1, 9):
            least = peer.optimal_steps_mixed(n, min(snapshots, n - 1)) - n
            assert Mixed(n, snapshots).counts().advances == least


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "snapshots"), [(2200, 12), pytest.param(20_000, 60, marks=pytest.mark.slow)]
)
def test_beyond_the_exact_size_a_bound_is_stated_and_kept(n, snapshots):
    schedule = Mixed(n, snapshots)
    assert not schedule.exact
    counts = replay(schedule, n, capacity=snapshots, stage=1)
    assert counts == schedule.counts()
    fewest_run = optimal_advances(n, snapshots) + 1
    assert counts.advances + n <= schedule.bound() * fewest_run * (1 + 1e-12)
    assert schedule.bound() < 1.1
    assert counts.advances < optimal_advances(n, snapshots)


def test_many_rooms_are_no_large_table():
    schedule = Mixed(2000, 700 * 8001, state=8001, tape=23_999)
    assert not schedule.exact
    counts = replay(schedule, 2000, capacity=700)
    assert counts == schedule.counts() and counts.kept_tapes > 0
    assert schedule.heaviest(8001, 23_999) <= schedule.budget
    assert schedule.bound() < 2


@pytest.mark.slow
def test_where_all_tapes_fit_nothing_is_run_twice():
    schedule = Mixed(10**5, 10**5 * 7 - 7, state=5, tape=7)
    assert schedule.exact and schedule.bound() == 1
    counts = schedule.counts()
    assert (counts.advances, counts.kept_tapes) == (0, 10**5 - 1)
    assert replay(Mixed(50, 49), 50) == Mixed(50, 49).counts()
    assert Mixed(50, 48).counts().advances > 0

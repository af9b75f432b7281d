"""Slots that hold states or tapes, against searches and the peer's own numbers."""

import pytest

from retape import BudgetError, PlanError
from retape.schedule import Mixed, Schedule, beta, optimal_advances, replay
from tests.schedule.mixed_search import fewest

SIZES = [(1, 1), (2, 1), (3, 1), (1, 2), (2, 3), (3, 2)]


@pytest.mark.parametrize(("state", "tape"), SIZES)
def test_the_advances_are_those_of_an_exhaustive_search(state, tape):
    refused = 0
    for n in range(1, 7 if state + tape < 4 else 6):
        for budget in range(3 * max(state, tape)):
            least = fewest(n, budget, state, tape)
            if least is None:
                with pytest.raises(BudgetError, match="The least possible is") as e:
                    Mixed(n, budget, state, tape)
                assert e.value.least is not None and budget < e.value.least
                assert budget < (min(state, (n - 1) * tape) if n > 1 else 0)
                refused += 1
            else:
                assert Mixed(n, budget, state, tape).counts().advances == least
    assert refused


def test_that_search_sees_a_schedule_that_keeps_states_only():
    assert all(
        fewest(n, 2, 1, 1) < Schedule(n, 2).counts().advances for n in range(2, 7)
    )


def test_the_advances_are_those_of_the_peer():
    peer = pytest.importorskip("checkpoint_schedules.mixed")
    for n in range(1, 61):
        for snapshots in range(1, 9):
            least = peer.optimal_steps_mixed(n, min(snapshots, n - 1)) - n
            assert Mixed(n, snapshots).counts().advances == least


@pytest.mark.parametrize(("state", "tape"), SIZES)
@pytest.mark.parametrize("stage", [1, 3])
def test_a_replay_counts_what_is_predicted(state, tape, stage):
    for n in [*range(0, 24), 61, 100]:
        for budget in (3, 4, 7, 12):
            schedule = Mixed(n, budget, state, tape, stage)
            counts = replay(schedule, n, stage=stage)
            assert counts == schedule.counts()
            assert counts.taped == n
            assert counts.advances <= (schedule.counts_and_sweeps()[1]) * n


def test_the_budget_is_kept_at_every_action():
    for state, tape in SIZES:
        for budget in (3, 5, 8):
            held, most = {}, 0
            for action in Mixed(50, budget, state, tape):
                match type(action).__name__:
                    case "Store":
                        held[action.slot] = state
                    case "Tape":
                        held[action.slot] = tape
                    case "Drop":
                        del held[action.slot]
                most = max(most, sum(held.values()))
            assert most <= budget


def test_tapes_never_do_worse_than_states_only():
    for n in (2, 10, 40, 90):
        for snapshots in (1, 2, 5, 9):
            mixed = Mixed(n, snapshots).counts().advances
            assert mixed <= optimal_advances(n, snapshots)
            assert mixed >= optimal_advances(n, snapshots) - (n - 1)
        assert Mixed(n, n - 1).counts().advances == 0


def test_tapes_that_do_not_fit_leave_the_binomial_schedule():
    for n in (2, 9, 40):
        mixed, plain = Mixed(n, 4, 1, 5).counts(), Schedule(n, 4).counts()
        assert mixed == plain


@pytest.mark.parametrize(("n", "snapshots"), [(3000, 12), (20_000, 60)])
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


def test_where_all_tapes_fit_nothing_is_run_twice():
    schedule = Mixed(10**6, 10**6 * 7 - 7, state=5, tape=7)
    assert schedule.exact and schedule.bound() == 1
    counts = schedule.counts()
    assert (counts.advances, counts.kept_tapes) == (0, 10**6 - 1)
    assert replay(Mixed(50, 49), 50) == Mixed(50, 49).counts()
    assert Mixed(50, 48).counts().advances > 0


def test_the_bound_is_above_the_optimum_where_that_is_known():
    for n in (beta(3, 3), 90, 150):
        exact = Mixed(n, 3).counts().advances
        assert exact + n >= optimal_advances(n, 3) + 1


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Mixed(-1, 3), "`length=-1`, `budget=3` and `stage=1` cannot be"),
        (lambda: Mixed(5, 3, stage=0), "`stage=0` cannot be"),
        (lambda: Mixed(5, 3, 0, 1), "`state=0` and `tape=1` cannot be"),
        (lambda: Mixed(5, 2, 3, 1), "The least possible is 3 "),
        (lambda: Mixed(3, 1, 3, 1), "The least possible is 2 "),
    ],
)
def test_what_cannot_be_is_refused(make, text):
    with pytest.raises(PlanError, match=text):
        make()

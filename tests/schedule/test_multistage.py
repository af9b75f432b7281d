"""Multistage steps: equal to a search over all schedules, never above the others."""

import pytest

from retape import BudgetError, PlanError, ScheduleError
from retape.schedule import Mixed, Multistage, Restore, Schedule, replay
from tests.schedule.mixed_search import fewest


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_it_is_the_optimum_of_all_schedules(stages):
    for n in range(1, 6):
        for budget in range(1, 6):
            schedule = Multistage(n, budget, stages, stiffly_accurate=True)
            best = fewest(n, budget, 1, stages, restarts=True)
            assert schedule.advances() == best, (n, budget)
            assert schedule.counts().advances == best
            plain = Multistage(n, budget, stages)
            assert plain.advances() == fewest(n, budget, 1, stages) >= best


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("budget", [1, 3, 8, 30])
def test_it_can_be_obeyed_within_its_units(stages, budget):
    for n in (1, 2, 9, 40, 77):
        schedule = Multistage(n, budget, stages, stiffly_accurate=True)
        held, most, restarts = {}, 0, 0
        for action in schedule:
            kind = type(action).__name__
            if kind in ("Store", "Tape"):
                held[action.slot] = stages if kind == "Tape" else 1
            elif kind == "Drop":
                del held[action.slot]
            restarts += kind == "Restore" and held[action.slot] == stages > 1
            most = max(most, sum(held.values()))
        assert most <= budget
        counts = replay(schedule, n, restarts=True)
        assert counts == schedule.counts()
        assert counts.advances == schedule.advances()
        assert counts.taped == n
        assert schedule.advances() <= Multistage(n, budget, stages).advances()
        assert schedule.advances() <= Schedule(n, budget).counts().advances
        if n == 77 and budget == 8 and stages == 2:
            assert restarts


def test_up_to_half_of_the_steps_are_saved():
    """Steps run, taped ones included, beyond the first sweep."""
    for n in (30, 100):
        revolve = Schedule(n, 10).counts().advances + n
        again = Multistage(n, 10, 1, stiffly_accurate=True).advances()
        assert again <= revolve - n - (n - 11)
    wide = Multistage(20, 20, 1, stiffly_accurate=True)
    assert wide.advances() == 0 and Schedule(20, 20).counts().advances == 19


def test_a_replay_that_is_not_told_of_it_refuses_the_stream():
    schedule = Multistage(12, 3, 1, stiffly_accurate=True)
    assert any(isinstance(action, Restore) for action in schedule)
    with pytest.raises(ScheduleError, match="cannot be obeyed: the slot holds step"):
        replay(schedule, 12)


def test_what_cannot_be_is_refused():
    with pytest.raises(PlanError, match="`length=5000` with `budget=99` takes a table"):
        Multistage(5000, 99, 2, stiffly_accurate=True)
    assert Multistage(5000, 99, 2).advances() == Mixed(5000, 99, 1, 2).counts().advances
    with pytest.raises(BudgetError, match="The least possible is 1"):
        Multistage(5, 0, 2)
    with pytest.raises(PlanError, match="cannot be"):
        Multistage(5, 2, 0)
    assert list(Multistage(0, 0, 2, stiffly_accurate=True)) == list(Mixed(0, 0))

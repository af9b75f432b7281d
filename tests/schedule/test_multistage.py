"""Multistage steps: equal to a search over all schedules, never above the others."""

import pytest

from retape import BudgetError, PlanError, ScheduleError
from retape.schedule import Mixed, Multistage, Restore, Schedule, replay


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
    assert Multistage(500, 30, 2).advances() == Mixed(500, 30, 1, 2).counts().advances
    with pytest.raises(BudgetError, match="The least possible is 1"):
        Multistage(5, 0, 2)
    with pytest.raises(PlanError, match="cannot be"):
        Multistage(5, 2, 0)
    assert list(Multistage(0, 0, 2, stiffly_accurate=True)) == list(Mixed(0, 0))

"""Two tiers against an exhaustive search, and the streamed near-optimum's bound."""

import pytest

from retape import PlanError
from retape.schedule import (
    Store,
    TierCosts,
    TwoTier,
    optimal_advances,
    replay,
)


def test_a_free_disk_is_as_good_as_memory():
    free = TierCosts(disk_write=0, disk_read=0)
    for n in (10, 33, 60):
        counts = replay(TwoTier(n, 2, 3, free), n)
        assert counts.advances == optimal_advances(n, 5)


def test_a_disk_that_costs_too_much_is_not_used():
    dear = TierCosts(disk_write=1e6)
    assert all(
        action.tier == "memory"
        for action in TwoTier(30, 2, 5, dear)
        if isinstance(action, Store)
    )


def test_small_runs_need_nothing():
    assert replay(TwoTier(0, 0, 0), 0).stores == 0
    assert replay(TwoTier(1, 0, 0), 1).stores == 0
    assert TwoTier(3, 0, 0, stage=3).cost() == 2.0


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: TwoTier(5, 0, 0), "`memory=0` and `disk=0` cannot be: the start"),
        (lambda: TwoTier(5, -1, 3), "`memory=-1` and `disk=3` cannot be"),
        (lambda: TwoTier(-5, 1, 1), "`length=-5` and `stage=1` cannot be"),
        (lambda: TierCosts(disk_read=-1), "`disk_read=-1` cannot be a cost"),
        (lambda: TierCosts(forward=float("nan")), "`forward=nan` cannot be a cost"),
    ],
)
def test_what_cannot_be_is_refused(make, text):
    with pytest.raises(PlanError, match=text):
        make()


@pytest.mark.parametrize(("memory", "disk"), [(5, 10), (20, 50), (3, 90)])
def test_a_thousand_stages_are_exact(memory, disk):
    schedule = TwoTier(1000, memory, disk, TierCosts(disk_write=2, disk_read=2))
    assert schedule.exact and schedule.bound() == 1


@pytest.mark.parametrize("slots", [(2, 3), (0, 3), (3, 0)])
def test_of_schedules_that_cost_the_same_the_fewest_advances_are_made(slots):
    free = TierCosts(0, 0, 0, 0, 0, 0, 0)
    counts = TwoTier(50, *slots, free).counts()
    assert counts.advances == optimal_advances(50, sum(slots))
    assert TwoTier(50, *slots, free).cost() == 0
    # Free advances, and a disk that is not: as few transfers as before.
    disk = TierCosts(forward=0, tape=0, backward=0)
    assert TwoTier(50, 0, 3, disk).cost() == 5 + 49 * 5

"""Any number of tiers against an exhaustive search, and beyond the exact table."""

import pytest

from retape import StepCosts, Tier
from retape.schedule import Hierarchy, Store, replay
from tests.schedule.numbers import optimal_advances, spent


def two(memory, disk, write=5, read=5):
    """Memory, whose transfers are free, and a disk."""
    return Tier("memory", memory), Tier("disk", disk, write, read)


def of(*given):
    """Tiers from (snapshots, write, read)."""
    return tuple(Tier(f"t{i}", *each) for i, each in enumerate(given))


def checked(schedule):
    """Replayed: legal, counted as predicted, at the cost that it says."""
    room = {tier.name: tier.snapshots for tier in schedule.tiers}
    n, stage = schedule.length, schedule.stage
    counts = replay(schedule, n, capacity=room, stage=stage)
    predicted, sweeps = schedule.counts(), schedule.sweeps
    assert counts == predicted and counts.advances <= sweeps * max(0, n - 1)
    assert list(predicted.tiers) == list(room)
    used = {name: each for name, each in predicted.tiers.items() if each.stores}
    assert used == counts.tiers
    taping = n / stage * (schedule.costs.tape + schedule.costs.backward)
    beside = spent(schedule, schedule.tiers, schedule.costs.forward / stage)
    assert schedule.cost() == pytest.approx(taping + beside, abs=1e-9)
    return schedule


def test_stages_are_taped_whole():
    for n, stage in [(61, 3), (90, 2), (5, 9), (0, 1), (1, 1)]:
        checked(Hierarchy(n, of((2, 0, 0), (3, 1, 1), (4, 5, 5)), stage=stage))


def test_a_run_of_any_length_is_told_in_bounded_time():
    n, tiers = 10**30, of((1, 0, 0), (1, 1, 1), (1, 8, 8))
    schedule = Hierarchy(n, tiers)
    assert not schedule.exact and 1 < schedule.bound()
    assert schedule.cost() >= n + optimal_advances(n, 3)


def test_free_tiers_are_as_good_as_one():
    for n in (10, 33):
        schedule = Hierarchy(n, of((1, 0, 0), (1, 0, 0), (2, 0, 0)))
        assert replay(schedule, n).advances == optimal_advances(n, 4)


def test_costs_at_the_end_of_numbers():
    free = StepCosts(0, 0, 0)
    assert Hierarchy(40, of((1, 0, 0), (2, 0, 0)), free).cost() == 0
    assert Hierarchy(40, of((1, 1, 1), (2, 3, 3)), StepCosts(0)).cost() == 120 + 0


@pytest.mark.slow("3-90")
@pytest.mark.parametrize(("memory", "disk"), [(5, 10), (20, 50), (3, 90)])
def test_a_thousand_stages_of_two_tiers_are_exact(memory, disk):
    schedule = Hierarchy(1000, two(memory, disk, 2, 2))
    assert schedule.exact and schedule.bound() == 1


def test_a_tier_that_costs_too_much_is_not_used():
    stores = [a for a in Hierarchy(30, two(2, 5, 1e6)) if isinstance(a, Store)]
    assert {action.tier for action in stores} == {"memory"}


def test_small_runs_need_nothing():
    for n in (0, 1):
        assert replay(Hierarchy(n, two(0, 0)), n).stores == 0
    assert Hierarchy(3, two(0, 0), stage=3).cost() == 2.0


@pytest.mark.parametrize("slots", [(2, 3), (0, 3), (3, 0)])
def test_of_schedules_that_cost_the_same_the_fewest_advances_are_made(slots):
    free = Hierarchy(50, two(*slots, 0, 0), StepCosts(0, 0, 0))
    assert free.counts().advances == optimal_advances(50, sum(slots))
    assert free.cost() == 0
    # Free advances, and a disk that is not: as few transfers as before.
    assert Hierarchy(50, two(0, 3), StepCosts(0, 0, 0)).cost() == 5 + 49 * 5


@pytest.mark.slow
def test_costs_of_zero_have_a_bound():
    nothing = StepCosts(0, 0, 0)
    for memory, disk, n in [(3, 30, 100_000), (2, 2, 20), (0, 3, 50)]:
        schedule = Hierarchy(n, two(memory, disk, 0, 0), nothing)
        assert (schedule.cost(), schedule.bound()) == (0.0, 1.0)
        assert replay(Hierarchy(20, schedule.tiers, nothing), 20).taped == 20
    assert Hierarchy(100_000, two(0, 30), nothing).bound() >= 1.0


@pytest.mark.slow
def test_beyond_the_table_segments_are_as_near_as_the_rules():
    """A run over two tiers whose far one has more starts than it needs."""
    for n, tiers in [(2_500, two(8, 24)), (30_000, two(2, 5)), (10**6, two(4, 20))]:
        schedule = checked(Hierarchy(n, tiers)) if n < 10**5 else Hierarchy(n, tiers)
        assert not schedule.exact
        assert 1 <= schedule.bound() < 1.25


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "memory", "disk", "write", "read", "most"),
    [
        # Costs that other rules have reached: none of ours may be dearer.
        (89_513, 5, 1233, 0, 0.5, 407_961.5),
        (423_168, 26, 1963, 0, 0.5, 1_901_257),
        (86_341, 29, 32, 20, 0, 506_719.4),
        (100_000, 10, 100, 5, 5, 597_175),
    ],
)
def test_a_long_run_over_a_disk_is_as_cheap_as_by_any_rule(
    n, memory, disk, write, read, most
):
    near = Tier("memory", memory, *((0.1, 0.1) if read == 0 else (0, 0)))
    schedule = Hierarchy(n, (near, Tier("disk", disk, write, read)))
    assert not schedule.exact
    assert schedule.cost() <= most * (1 + 1e-12)

"""Two tiers against an exhaustive search, and the streamed near-optimum's bound."""

import pytest

from retape import PlanError
from retape.schedule import (
    Advance,
    Restore,
    Store,
    TierCosts,
    TwoTier,
    optimal_advances,
    replay,
)
from retape.schedule._tier_table import ENDLESS, ArrayTable, Table
from tests.schedule.tier_search import cheapest

GRID = [
    TierCosts(disk_write=0, disk_read=0),
    TierCosts(disk_write=1, disk_read=2),
    TierCosts(forward=3, disk_write=2, disk_read=0.5),
    TierCosts(memory_write=0.25, memory_read=0.5, disk_write=4, disk_read=1),
    TierCosts(forward=0.5, tape=2, backward=7, disk_write=10, disk_read=10),
]


def spent(actions, costs):
    """The cost of a stream, added up action by action."""
    total = 0.0
    for action in actions:
        match action:
            case Advance(start, stop):
                total += costs.forward * (stop - start)
            case Store(_, _, tier):
                total += costs.write(tier)
            case Restore(_, _, tier):
                total += costs.read(tier)
    return total


@pytest.mark.parametrize("costs", GRID, ids=range(len(GRID)))
def test_the_cost_is_that_of_an_exhaustive_search(costs):
    write = costs.memory_write, costs.disk_write
    read = costs.memory_read, costs.disk_read
    for n in range(1, 8):
        for memory, disk in [(1, 0), (0, 1), (1, 1), (2, 1), (1, 2), (0, 2)]:
            schedule = TwoTier(n, memory, disk, costs)
            least = cheapest(n, memory, disk, costs.forward, write, read)
            taping = n * (costs.tape + costs.backward)
            assert schedule.cost() == pytest.approx(least + taping, abs=1e-9)
            capacity = {"memory": memory, "disk": disk}
            counts = replay(schedule, n, capacity=capacity)
            assert counts.taped == n
            assert spent(schedule, costs) == pytest.approx(least, abs=1e-9)


@pytest.mark.parametrize("costs", GRID, ids=range(len(GRID)))
def test_larger_ones_are_legal_and_cost_what_they_say(costs):
    for n, stage in [(40, 1), (61, 3), (90, 2)]:
        for memory, disk in [(3, 2), (1, 4), (2, 0), (0, 3)]:
            schedule = TwoTier(n, memory, disk, costs, stage)
            counts = replay(
                schedule, n, capacity={"memory": memory, "disk": disk}, stage=stage
            )
            assert counts.taped == n and schedule.exact and schedule.bound() == 1.0
            both = n / stage * (costs.tape + costs.backward)
            per_stage = TierCosts(
                costs.forward / stage,
                memory_write=costs.memory_write,
                memory_read=costs.memory_read,
                disk_write=costs.disk_write,
                disk_read=costs.disk_read,
            )
            assert schedule.cost() == pytest.approx(both + spent(schedule, per_stage))


@pytest.mark.parametrize("costs", GRID, ids=range(len(GRID)))
def test_a_replay_counts_what_is_predicted(costs, monkeypatch):
    for largest in (None, 0):
        if largest is not None:  # the streamed near-optimum
            monkeypatch.setattr("retape.schedule._tiers.EXACT", largest)
        for n in (0, 1, 2, 9, 41):
            for memory, disk in [(1, 0), (0, 4), (2, 3), (3, 20)]:
                for stage in (1, 3):
                    schedule = TwoTier(n, memory, disk, costs, stage)
                    capacity = {"memory": memory, "disk": disk}
                    counts = replay(schedule, n, capacity=capacity, stage=stage)
                    assert counts == schedule.counts()
                    most = schedule.counts_and_sweeps()[1]
                    assert counts.advances <= most * max(0, n - 1)


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


@pytest.mark.parametrize("costs", GRID, ids=range(len(GRID)))
@pytest.mark.parametrize(("n", "memory"), [(24, 0), (30, 1), (30, 2), (33, 3)])
def test_a_disk_that_never_fills_up_has_the_optimum_of_one_with_enough_slots(
    monkeypatch, costs, n, memory
):
    full = TwoTier(n, memory, n, costs)
    assert full.exact
    least = full.cost()
    # Now too large for the table of all slots, and not for the one of endless slots.
    monkeypatch.setattr("retape.schedule._tiers.EXACT", n**2 * (memory + 1))
    found = [TwoTier(n, memory, disk, costs) for disk in range(1, n)]
    exact = [schedule for schedule in found if schedule.exact]
    assert exact and exact[-1] is found[-1]
    for schedule in exact:
        assert schedule.cost() == pytest.approx(least, abs=1e-9)
        replay(schedule, n, capacity={"memory": memory, "disk": schedule.disk})
    for schedule in found[: -len(exact)]:
        assert schedule.cost() >= least - 1e-9
        assert schedule.cost() / schedule.bound() >= least * (1 - 1e-12)


@pytest.mark.parametrize(("memory", "disk"), [(10, 40), (0, 50), (12, 0), (1, 400)])
def test_beyond_the_exact_size_a_bound_is_stated_and_kept(memory, disk, monkeypatch):
    monkeypatch.setattr("retape.schedule._tiers.EXACT", 4_000_000)
    costs = TierCosts(disk_write=2, disk_read=3)
    schedule = TwoTier(5000, memory, disk, costs)
    assert not schedule.exact
    counts = replay(schedule, 5000, capacity={"memory": memory, "disk": disk})
    taping = 5000 * (costs.tape + costs.backward)
    assert schedule.cost() == pytest.approx(taping + spent(schedule, costs))
    least = taping + optimal_advances(5000, memory + disk)
    assert schedule.cost() <= schedule.bound() * least * (1 + 1e-12)
    assert counts.taped == 5000


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


def test_the_table_of_arrays_is_the_table(seeded):
    for _ in range(25):
        n, memory = seeded.randint(1, 18), seeded.randint(0, 3)
        disk = seeded.choice([ENDLESS, 1, 2, 4])
        costs = TierCosts(
            forward=seeded.choice([1, 2]),
            memory_write=seeded.choice([0, 0.5]),
            disk_write=seeded.randint(0, 5),
            disk_read=seeded.randint(0, 5),
        )
        one = Table(n, memory, disk, costs)
        other = ArrayTable(n, memory, disk, costs)
        for room, row in one.value.items():
            assert list(other.value[room]) == row
        for place, row in other.stored.items():
            assert list(row) == one.stored[place]
            assert list(other.splits[place]) == one.splits[place]
    # And another cost is another table.
    wrong = Table(18, 2, 2, TierCosts(disk_read=6))
    assert ArrayTable(18, 2, 2, TierCosts()).best(18, 2, 2) != wrong.best(18, 2, 2)


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

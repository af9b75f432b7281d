"""Any number of tiers against an exhaustive search, and beyond the exact table."""

import itertools

import pytest

from retape import PlanError
from retape.schedule import (
    Advance,
    Hierarchy,
    Restore,
    Store,
    Tier,
    TierCosts,
    TwoTier,
    optimal_advances,
    replay,
)
from retape.schedule import _hierarchy_rules as rules
from retape.schedule._nested_table import NestedTable
from retape.schedule._room_table import ENDLESS, Rate, RoomArrays, RoomTable
from tests.schedule.tier_search import cheapest_over


def of(*given):
    """Tiers from (snapshots, write, read)."""
    return tuple(Tier(f"t{i}", *each) for i, each in enumerate(given))


def spent(schedule):
    """The cost of a stream beside taping, added up action by action."""
    tiers = {tier.name: tier for tier in schedule.tiers}
    total = 0.0
    for action in schedule:
        match action:
            case Advance(start, stop):
                advanced = (stop - start) / schedule.stage
                total += schedule.costs.forward * advanced
            case Store(_, _, name):
                total += tiers[name].write
            case Restore(_, _, name):
                total += tiers[name].read
    return total


def checked(schedule):
    """Replayed: legal, counted as predicted, at the cost that it says."""
    room = {tier.name: tier.snapshots for tier in schedule.tiers}
    n, stage = schedule.length, schedule.stage
    counts = replay(schedule, n, capacity=room, stage=stage)
    predicted, sweeps = schedule.counts_and_sweeps()
    assert counts == predicted and counts.advances <= sweeps * max(0, n - 1)
    assert list(predicted.tiers) == list(room)
    used = {name: each for name, each in predicted.tiers.items() if each.stores}
    assert used == counts.tiers
    taping = n / stage * (schedule.costs.tape + schedule.costs.backward)
    assert schedule.cost() == pytest.approx(taping + spent(schedule), abs=1e-9)
    return schedule


@pytest.fixture
def no_table(monkeypatch):
    """Everything is beyond the exact table."""

    def far(largest=0):
        monkeypatch.setattr(rules, "EXACT", largest)
        rules.decided.cache_clear()

    yield far
    rules.decided.cache_clear()


SMALL = [
    of((1, 0, 0), (1, 1, 1), (1, 4, 4)),
    of((1, 0, 0), (0, 1, 1), (2, 2, 0.5)),
    of((1, 5, 5), (1, 2, 2), (1, 0, 0)),
    of((1, 1, 1), (1, 1, 1), (1, 1, 1)),
    of((0, 0, 0), (1, 0.5, 2), (1, 3, 0)),
    of((1, 0, 2), (1, 2, 0)),
    of((2, 1, 1)),
    of((1, 0, 1), (1, 1, 2), (1, 2, 3), (1, 3, 4)),
]


@pytest.mark.parametrize("tiers", SMALL, ids=range(len(SMALL)))
def test_the_cost_is_that_of_an_exhaustive_search(tiers):
    costs = TierCosts(forward=2, tape=3, backward=0.5)
    room = [tier.snapshots for tier in tiers]
    write, read = ([getattr(t, name) for t in tiers] for name in ("write", "read"))
    for n in range(1, 7 if len(tiers) < 4 else 5):
        schedule = checked(Hierarchy(n, tiers, costs))
        assert schedule.exact and schedule.bound() == 1
        least = cheapest_over(n, room, 2, write, read)
        assert spent(schedule) == pytest.approx(least, abs=1e-9)


def test_random_hierarchies_are_the_cheapest(seeded):
    for _ in range(15):
        amounts = [0, 0.5, 1, 3, 7]
        tiers = of(
            *(
                (seeded.randint(0, 2), seeded.choice(amounts), seeded.choice(amounts))
                for _ in range(3)
            )
        )
        room = [tier.snapshots for tier in tiers]
        n = seeded.randint(2, 6)
        if any(room):
            write, read = [t.write for t in tiers], [t.read for t in tiers]
            least = cheapest_over(n, room, 1, write, read)
            found = spent(checked(Hierarchy(n, tiers)))
            assert found == pytest.approx(least, abs=1e-9), tiers


def test_over_memory_and_disk_it_is_the_schedule_of_two_tiers(seeded):
    for _ in range(30):
        n, memory, disk = (seeded.randint(*pair) for pair in ((0, 40), (0, 4), (1, 6)))
        costs = TierCosts(
            forward=seeded.choice([0, 1, 2]),
            memory_write=seeded.choice([0, 0.5]),
            disk_write=seeded.randint(1, 5),
            disk_read=seeded.randint(0, 5),
        )
        near = Tier("memory", memory, costs.memory_write, costs.memory_read)
        far = Tier("disk", disk, costs.disk_write, costs.disk_read)
        one, other = TwoTier(n, memory, disk, costs), Hierarchy(n, (near, far), costs)
        assert list(one) == list(other)
        assert one.cost() == pytest.approx(other.cost()) and one.counts() == (
            other.counts()
        )


def test_stages_are_taped_whole():
    for n, stage in [(61, 3), (90, 2), (5, 9), (0, 1), (1, 1)]:
        checked(Hierarchy(n, of((2, 0, 0), (3, 1, 1), (4, 5, 5)), stage=stage))


def test_beyond_the_exact_table_the_bound_is_kept(seeded, no_table):
    # 1.009 at worst of 250 such hierarchies (`benchmarks/schedules/hierarchy.py`).
    for _ in range(20):
        tiers = of(
            *(
                (seeded.randint(0, 4), *(seeded.choice([0, 0.5, 1, 8]) for _ in "wr"))
                for _ in range(seeded.randint(1, 3))
            )
        )
        n = seeded.randint(5, 40)
        if not any(tier.snapshots for tier in tiers):
            continue
        no_table(400_000_000)
        best = Hierarchy(n, tiers)
        least, exact = best.cost(), best.exact
        no_table()
        schedule = checked(Hierarchy(n, tiers))
        assert exact and not schedule.exact
        assert least <= schedule.cost() + 1e-9 <= 1.05 * least
        assert schedule.cost() / schedule.bound() <= least + 1e-9


def test_more_slots_never_make_it_dearer_by_much(no_table):
    no_table()
    costs = [
        Hierarchy(150, of((2, 0, 0), (host, 1, 1), (9, 6, 6))).cost()
        for host in (0, 2, 5, 20)
    ]
    assert all(more <= 1.02 * fewer for fewer, more in itertools.pairwise(costs))


@pytest.mark.parametrize(
    ("n", "slots"),
    [
        (4_000, (3, 5, 100)),  # intervals of one length, which fit the last tier
        (4_000, (2, 5, 10)),  # binomial splits
        (10**6, (2, 4, 6)),
        (10**30, (1, 1, 1)),  # two of the tiers, in closed form
    ],
)
def test_long_runs_are_told_in_bounded_time(n, slots, monkeypatch):
    # Smaller tables than those of a user, for the sake of the test's time.
    monkeypatch.setattr("retape.schedule._nested_policy._SIZE", 3_000_000)
    monkeypatch.setattr(rules, "EXACT", 1_000_000)
    rules.decided.cache_clear()
    each = zip(slots, (0, 1, 8), strict=True)
    tiers = of(*((count, cost, cost) for count, cost in each))
    schedule = Hierarchy(n, tiers)
    assert not schedule.exact and 1 < schedule.bound()
    assert schedule.cost() >= n + optimal_advances(n, sum(slots))
    if n <= 4_000:
        checked(schedule)
        assert schedule.bound() < 2
    rules.decided.cache_clear()


def test_tables_of_arrays_are_the_tables(seeded):
    for _ in range(12):
        stages = seeded.randint(1, 12)
        shape = tuple(seeded.choice([ENDLESS, 0, 1, 2]) for _ in range(3))
        rates = tuple(
            Rate(name, seeded.randint(0, 4), seeded.randint(0, 4)) for name in "abc"
        )
        one, other = (
            RoomTable(stages, shape, rates, 1),
            RoomArrays(stages, shape, rates, 1),
        )
        for room, row in one.value.items():
            assert list(other.value[room]) == row
        for place, row in other.stored.items():
            assert list(row) == one.stored[place]
            assert list(other.splits[place]) == one.splits[place]


def test_a_nested_table_of_one_tier_is_the_table_of_all_rooms():
    rates = (Rate("only", 2, 3),)
    for slots in (1, 4, ENDLESS):
        nested = NestedTable(40, (slots,), rates, 1)
        assert nested.best(40) == RoomArrays(40, (slots,), rates, 1).best(40, slots)


def test_free_tiers_are_as_good_as_one():
    for n in (10, 33):
        schedule = Hierarchy(n, of((1, 0, 0), (1, 0, 0), (2, 0, 0)))
        assert replay(schedule, n).advances == optimal_advances(n, 4)


def test_costs_at_the_end_of_numbers():
    free = TierCosts(0, 0, 0)
    assert Hierarchy(40, of((1, 0, 0), (2, 0, 0)), free).cost() == 0
    assert Hierarchy(40, of((1, 1, 1), (2, 3, 3)), TierCosts(0)).cost() == 120 + 0
    for n in (50, 40_000):
        dear = Hierarchy(n, of((2, 1e308, 1e308), (2, 1e308, 1e308)))
        with pytest.raises(PlanError, match="cost more than numbers of floating"):
            dear.cost()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Hierarchy(5, ()), "tiers named .. cannot be: pass at least one"),
        (lambda: Hierarchy(5, of((1,), (1,))[:1] * 2), "tiers named .'t0', 't0'. can"),
        (lambda: Hierarchy(5, of((0,), (0,))), "the start state needs a slot"),
        (lambda: Hierarchy(5, ("disk",)), "`'disk'` is no tier. Pass `retape.Tier"),
        (lambda: Hierarchy(-5, of((1,))), "`length=-5` and `stage=1` cannot be"),
        (lambda: Tier("", 1), "`name=''` cannot be the name of a tier"),
        (lambda: Tier("a/b", 1), "`name='a/b'` cannot be the name of a tier"),
        (lambda: Tier("a", -1), "`snapshots=-1` of the tier 'a' cannot be"),
        (lambda: Tier("a", 2.5), "`snapshots=2.5` of the tier 'a' cannot be"),
        (lambda: Tier("a", "many"), "`snapshots='many'` is not an amount"),
        (lambda: Tier("a", 1, write=-1), "`write=-1` cannot be a cost"),
        (lambda: Tier("a", 1, read=float("inf")), "`read=inf` cannot be a cost"),
        (lambda: Tier("a", 1, read=10**400), "cannot be a cost"),
    ],
)
def test_what_cannot_be_is_refused(make, text):
    with pytest.raises(PlanError, match=text):
        make()

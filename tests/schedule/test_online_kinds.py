"""Two tiers and mixed slots while the end is not known: valid, and near the optimum."""

from functools import cache

import pytest

from retape import BudgetError
from retape.schedule import (
    Mixed,
    OnlineMixed,
    OnlineTiers,
    Restore,
    Store,
    TierCosts,
    TwoTier,
    replay,
)

COSTS = [TierCosts(), TierCosts(disk_write=1, disk_read=1), TierCosts(disk_read=20)]


def cost(actions, n, costs):
    """Everything that the actions of single-step stages cost, taping included."""
    actions = list(actions)
    total = replay(actions, n).advances * costs.forward
    total += sum(costs.write(a.tier) for a in actions if isinstance(a, Store))
    total += sum(costs.read(a.tier) for a in actions if isinstance(a, Restore))
    return total + n * (costs.tape + costs.backward)


@pytest.mark.parametrize("slots", [(0, 1), (1, 0), (1, 1), (2, 3), (4, 10), (0, 4)])
@pytest.mark.parametrize("costs", COSTS)
def test_tiers_are_valid_and_near_the_optimum(slots, costs):
    online = OnlineTiers(*slots, costs)
    within = dict(zip(("memory", "disk"), slots, strict=True))
    for n in [*range(30), 61, 128]:
        replay(online.actions(n), n, capacity=within)
        found = cost(online.actions(n), n, costs)
        assert found <= 1.21 * TwoTier(n, *slots, costs).cost()


def moved_once(costs):
    """What a run costs as it goes, where a snapshot may be moved to disk."""
    state, total, found = OnlineTiers(1, 2, costs).begin(), 0.0, []
    for p in range(40):
        state, placed = state.place(p)
        if placed.slot is not None:
            total += costs.write(placed.tier)
        total += len(placed.moved) * (costs.memory_read + costs.disk_write)
        rooms, ends = state.rooms(), [*state.positions[1:], p + 1]
        back = [
            state.policy.price(x.tier, end - x.stage, room)
            for x, end, room in zip(state.held, ends, rooms, strict=True)
        ]
        found.append(p + 1 + total + sum(back))
    return found


@pytest.mark.parametrize("costs", COSTS)
def test_with_moves_counted_it_stays_near(costs):
    for p, found in enumerate(moved_once(costs)):
        both = 2 * (p + 2)
        assert found + both <= 1.21 * TwoTier(p + 2, 1, 2, costs).cost()


def test_no_placement_without_knowing_the_end_does_much_better():
    """All sets of snapshots that fit, by exhaustive search over every decision."""
    costs, upto = TierCosts(disk_write=2, disk_read=2), 14
    policy = OnlineTiers(1, 1, costs).begin().policy

    @cache
    def back(held, end):
        room, total = (1, 1), 0.0
        ends = [*(x for x, _ in held[1:]), end]
        for (x, tier), stop in zip(held, ends, strict=True):
            room = tuple(
                n - (name == tier) for n, name in zip(room, TIERS, strict=True)
            )
            total += policy.price(tier, stop - x, room)
        return total

    def survives(most):
        """Whether some decisions keep each length within `most` times its optimum."""
        reached = {((), 0.0)}
        for p in range(upto):
            later = set()
            for held, paid in reached:
                for after, more in decisions(held, p, costs):
                    total = paid + more + p + 1 + back(after, p + 1) + 2 * (p + 2)
                    if total <= most * TwoTier(p + 2, 1, 1, costs).cost() + 1e-9:
                        later.add((after, paid + more))
            reached = later
        return bool(reached)

    ours = max(
        cost_so_far / TwoTier(p + 2, 1, 1, costs).cost()
        for p, cost_so_far in enumerate(paid(OnlineTiers(1, 1, costs), upto))
    )
    assert survives(ours)
    assert not survives(1.02)
    assert ours < 1.12


def paid(online, upto):
    state, total = online.begin(), 0.0
    for p in range(upto):
        state, placed = state.place(p)
        total += 0 if placed.slot is None else online.costs.write(placed.tier)
        total += len(placed.moved) * online.costs.disk_write
        ends = [*state.positions[1:], p + 1]
        back = [
            state.policy.price(x.tier, end - x.stage, room)
            for x, end, room in zip(state.held, ends, state.rooms(), strict=True)
        ]
        yield total + p + 1 + sum(back) + 2 * (p + 2)


def decisions(held, p, costs):
    """All that can be held after a stage has been asked about, and what it costs."""
    if held:
        yield held, 0.0
    kept = {tier: [i for i, x in enumerate(held) if x[1] == tier] for tier in TIERS}
    for tier in TIERS:
        if not kept[tier]:
            yield (*held, (p, tier)), costs.write(tier)
        for i in kept[tier]:
            if i:
                yield (*held[:i], *held[i + 1 :], (p, tier)), costs.write(tier)
    if kept["memory"] and not kept["disk"]:
        (i,) = kept["memory"]
        moved = (*held[:i], (held[i][0], "disk"), *held[i + 1 :], (p, "memory"))
        yield moved, costs.disk_write


TIERS = ("memory", "disk")


@pytest.mark.parametrize("sizes", [(3, 1, 1), (8, 1, 1), (7, 2, 1), (7, 1, 2)])
def test_mixed_slots_are_valid_and_near_the_optimum(sizes):
    budget, state, tape = sizes
    online = OnlineMixed(*sizes)
    for n in [*range(30), 61, 128]:
        replay(online.actions(n), n)
        assert heaviest(online.actions(n), state, tape) <= budget
        run = replay(online.actions(n), n).advances + n
        best = Mixed(n, *sizes).counts().advances + n
        # Where all tapes would have fit each step but the last is run twice.
        assert run <= (2 if n < 3 * budget else 1.2) * best


def heaviest(actions, state, tape):
    held, most = {}, 0
    for action in actions:
        kind = type(action).__name__
        if kind in ("Store", "Tape"):
            held[action.slot] = state if kind == "Store" else tape
        elif kind == "Drop":
            del held[action.slot]
        most = max(most, sum(held.values()))
    return most


def test_a_long_run_is_asked_about_a_few_hundred_times_for_each_doubling():
    state, p, asked, stop = OnlineTiers(2, 3).begin(), 0, 0, 10_000
    while (p := state.next_change(p, stop)) < stop:
        state, _ = state.place(p)
        asked, p = asked + 1, p + 1
    assert asked < 1_700
    assert len(state.held) == 5


def test_beyond_the_table_a_known_length_is_near_its_bound():
    schedule = TwoTier(2_500, 8, 24)
    assert not schedule.exact
    assert schedule.bound() < 1.12  # Segments alone: SEG.
    counts = replay(schedule, 2_500, capacity={"memory": 8, "disk": 24})
    assert counts == schedule.counts()
    assert cost(schedule, 2_500, schedule.costs) == schedule.cost()


def test_a_start_state_that_does_not_fit_is_refused():
    with pytest.raises(BudgetError, match=r"least possible is 5 \(5 B"):
        OnlineMixed(budget=4, state=5)

"""Two tiers and mixed slots while the end is not known: valid, and near the optimum."""

from functools import cache, partial

import pytest

from retape import Tier
from retape.schedule import (
    Hierarchy,
    Mixed,
    OnlineMixed,
    OnlineTiers,
    replay,
)
from tests.schedule.numbers import spent

COSTS = [(5, 5), (1, 1), (5, 20)]
"""What the far tier's write and read cost."""


def two(memory, disk, costs=(5, 5)):
    return Tier("memory", memory), Tier("disk", disk, *costs)


def least(n, tiers):
    return Hierarchy(n, tiers).cost()


@pytest.mark.parametrize(
    ("slots", "costs"),
    [*zip([(0, 1), (1, 0), (1, 1), (2, 3), (4, 10), (0, 4)], COSTS * 2, strict=True)],
)
def test_tiers_are_valid_and_near_the_optimum(slots, costs):
    tiers = two(*slots, costs)
    online = OnlineTiers(tiers)
    within = dict(zip(("memory", "disk"), slots, strict=True))
    for n in [*range(12), 20, 29, 61]:
        replay(online.actions(n), n, capacity=within)
        found = spent(online.actions(n), tiers) + 2 * n
        assert found <= 1.21 * least(n, tiers)


@pytest.mark.parametrize("costs", COSTS)
def test_with_moves_counted_it_stays_near(costs):
    tiers = two(1, 2, costs)
    for p, found in enumerate(paid(tiers, 40)):
        assert found <= 1.21 * least(p + 2, tiers)


def test_no_placement_without_knowing_the_end_does_much_better():
    """All sets of snapshots that fit, by exhaustive search over every decision."""
    tiers, upto = two(1, 1, (2, 2)), 14
    policy = OnlineTiers(tiers).begin().policy

    priced = cache(partial(back, policy))

    def survives(most):
        """Whether some decisions keep each length within `most` times its optimum."""
        reached = {((), 0.0)}
        for p in range(upto):
            later = set()
            for held, paid in reached:
                for after, more in decisions(held, p, tiers):
                    total = paid + more + p + 1 + priced(after, p + 1) + 2 * (p + 2)
                    if total <= most * least(p + 2, tiers) + 1e-9:
                        later.add((after, paid + more))
            reached = later
        return bool(reached)

    ours = max(
        cost_so_far / least(p + 2, tiers)
        for p, cost_so_far in enumerate(paid(tiers, upto))
    )
    assert survives(ours)
    assert not survives(1.02)
    assert ours < 1.12


@pytest.mark.parametrize("near", [(0, 0), (0, 1), (1, 0), (1, 2)])
@pytest.mark.parametrize("far", [(5, 5), (2, 2), (1, 4), (5, 20)])
def test_each_decision_is_the_cheapest_of_all(near, far):
    """As if the run ended after it: by all that can be held then, and its price."""
    tiers = Tier("memory", 1, *near), Tier("disk", 1, *far)
    state, moves = OnlineTiers(tiers).begin(), 0
    for p in range(40):
        held = tuple((x.stage, x.tier) for x in state.held)
        every = {
            after: more + back(state.policy, after, p + 1)
            for after, more in decisions(held, p, tiers)
        }
        state, placed = state.place(p)
        after = tuple((x.stage, x.tier) for x in state.held)
        assert every[after] <= min(every.values()) + 1e-9
        moves += len(placed.moved)
    assert moves or far != (5, 5)


def back(policy, held, end):
    """What it costs to go back over what lies between snapshots, and to the end."""
    room, total = (1, 1), 0.0
    ends = [*(x for x, _ in held[1:]), end]
    for (x, tier), stop in zip(held, ends, strict=True):
        room = tuple(n - (name == tier) for n, name in zip(room, TIERS, strict=True))
        total += policy.price(tier, stop - x, room)
    return total


def paid(tiers, upto):
    """What a run costs if it ends after each stage, moves to the disk counted."""
    (_, far), of = tiers, {tier.name: tier for tier in tiers}
    state, total = OnlineTiers(tiers).begin(), 0.0
    for p in range(upto):
        state, placed = state.place(p)
        total += 0 if placed.slot is None else of[placed.tier].write
        total += len(placed.moved) * far.write
        ends = [*state.positions[1:], p + 1]
        back = [
            state.policy.price(x.tier, end - x.stage, room)
            for x, end, room in zip(state.held, ends, state.rooms(), strict=True)
        ]
        yield total + p + 1 + sum(back) + 2 * (p + 2)


def decisions(held, p, tiers):
    """All that can be held after a stage has been asked about, and what it costs."""
    write = {tier.name: tier.write for tier in tiers}
    if held:
        yield held, 0.0
    kept = {tier: [i for i, x in enumerate(held) if x[1] == tier] for tier in TIERS}
    for tier in TIERS:
        if not kept[tier]:
            yield (*held, (p, tier)), write[tier]
        for i in kept[tier]:
            if i:
                yield (*held[:i], *held[i + 1 :], (p, tier)), write[tier]
    if kept["memory"] and not kept["disk"]:
        (i,) = kept["memory"]
        moved = (*held[:i], (held[i][0], "disk"), *held[i + 1 :], (p, "memory"))
        yield moved, tiers[0].read + write["disk"] + write["memory"]


TIERS = ("memory", "disk")


@pytest.mark.parametrize("sizes", [(3, 1, 1), (8, 1, 1), (7, 2, 1), (7, 1, 2)])
def test_mixed_slots_are_valid_and_near_the_optimum(sizes):
    online = OnlineMixed(*sizes)
    for n in [*range(30), 61, 128]:
        run = replay(online.actions(n), n).advances + n
        best = Mixed(n, *sizes).counts().advances + n
        # Where all tapes would have fit each step but the last is run twice.
        assert run <= (2 if n < 3 * sizes[0] else 1.2) * best


def test_a_long_run_is_asked_about_a_few_hundred_times_for_each_doubling():
    state, p, asked, stop = OnlineTiers(two(2, 3)).begin(), 0, 0, 10_000
    while (p := state.next_change(p, stop)) < stop:
        state, _ = state.place(p)
        asked, p = asked + 1, p + 1
    assert asked < 1_700
    assert len(state.held) == 5

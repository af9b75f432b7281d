"""Unequal chains against an exhaustive search over persistent schedules."""

import heapq
from functools import cache
from math import inf

import pytest

from retape import BudgetError
from retape.schedule import Advance, Chain, replay
from tests.schedule.numbers import least_budget, optimal_advances


def cheapest(forward, states, tapes, budget, kept=True):
    """Dijkstra over (working step, held states, held tapes, steps left); or None.

    A snapshot may only be dropped when its own step is the next to be taped.
    """
    n = len(forward)
    heap, done, tie = [(0.0, 0, (0, frozenset(), frozenset(), n))], set(), 0
    while heap:
        cost, _, state = heapq.heappop(heap)
        if state in done:
            continue
        done.add(state)
        at, held, taped, left = state
        if left == 0:
            return cost
        used = sum(states[k] for k in held) + sum(tapes[k] for k in taped)
        follow = []
        if at is not None and at < left:
            if at + 1 <= left - 1:
                follow.append((cost + forward[at], (at + 1, held, taped, left)))
            if at not in held and used + states[at] <= budget:
                follow.append((cost, (at, held | {at}, taped, left)))
            rest = held - {at}
            room = budget - used + (states[at] if at in held else 0)
            # A stage at..left-1; its own snapshot may go first.
            if all(k < at for k in rest | taped) and sum(tapes[at:left]) <= room:
                follow.append((cost, (None, rest, taped, at)))
            if kept and at not in taped and at + 1 < left and tapes[at] <= room:
                follow.append((cost, (at + 1, rest, taped | {at}, left)))
        if left - 1 in taped:
            follow.append((cost, (None, held, taped - {left - 1}, left - 1)))
        follow += [(cost, (k, held, taped, left)) for k in held]
        for more, new in follow:
            tie += 1
            heapq.heappush(heap, (more, tie, new))
    return None


def rotor(forward, states, tapes, budget):
    """Rotor's recurrence (Beaumont et al. 2019, Theorem 1), written anew: one step is
    taped at a time, or the state before the first is kept and the run goes on."""

    @cache
    def least(a, b, room):
        if a == b:
            return 0
        options = [inf]
        if tapes[a] <= room:
            options.append(least(a + 1, b, room - tapes[a]))
        if states[a] <= room:
            options += [
                sum(forward[a:k]) + least(k, b, room - states[a]) + least(a, k, room)
                for k in range(a + 1, b)
            ]
        return min(options)

    return least(0, len(forward), budget)


def spent(chain):
    return sum(
        sum(chain.forward[a.start : a.stop]) for a in chain if isinstance(a, Advance)
    )


def random_chain(seeded, n):
    return (
        [seeded.randint(1, 9) for _ in range(n)],
        [seeded.randint(1, 6) for _ in range(n)],
        [seeded.randint(1, 8) for _ in range(n)],
    )


@pytest.mark.parametrize("kept", [True, False])
def test_the_cost_is_that_of_an_exhaustive_search(seeded, kept):
    refused = solved = 0
    for _ in range(90):
        forward, states, tapes = random_chain(seeded, seeded.randint(1, 6))
        budget = seeded.randint(1, 26)
        least = cheapest(forward, states, tapes, budget, kept)
        if least is None:
            with pytest.raises(BudgetError):
                Chain(forward, states, tapes, budget, keep_tapes=kept)
            assert budget < least_budget(states, tapes, keep_tapes=kept)
            refused += 1
            continue
        chain = Chain(forward, states, tapes, budget, keep_tapes=kept)
        assert chain.cost() == least == spent(chain)
        assert chain.peak_bytes() <= budget
        counts = replay(chain, len(forward))
        assert counts.taped == len(forward) and (kept or not counts.kept_tapes)
        solved += 1
    assert refused > 5 and solved > 50


def test_no_chain_costs_more_than_with_rotor(seeded):
    above = 0
    for _ in range(200):
        forward, states, tapes = random_chain(seeded, seeded.randint(6, 12))
        budget = least_budget(states, tapes) + seeded.randint(0, 25)
        chain = Chain(forward, states, tapes, budget)
        assert chain.cost() == rotor(forward, states, tapes, budget) == spent(chain)
        assert chain.peak_bytes() <= budget
        assert replay(chain, len(forward)) == chain.counts()
        states_only = least_budget(states, tapes, keep_tapes=False) <= budget and (
            Chain(forward, states, tapes, budget, keep_tapes=False).cost()
        )
        # A small lie: without the choice to keep a tape.
        above += states_only > chain.cost()
    assert above > 50


@pytest.mark.parametrize("kept", [True, False])
def test_the_least_budget_is_the_least(seeded, kept):
    for _ in range(40):
        forward, states, tapes = random_chain(seeded, seeded.randint(1, 6))
        least = least_budget(states, tapes, keep_tapes=kept)
        assert cheapest(forward, states, tapes, least, kept) is not None
        assert cheapest(forward, states, tapes, least - 1, kept) is None


def test_the_bytes_of_real_chains_are_exact_where_they_repeat():
    """Single bytes, not units: few sums of sizes differ."""
    forward, states, tapes = [1.5] * 24, [1 << 20] * 24, [3 << 20] * 24
    chain = Chain(forward, states, tapes, 10 << 20)
    small = Chain(forward, [1] * 24, [3] * 24, 10)
    assert chain.exact and chain.cost() == small.cost()
    assert chain.peak_bytes() == small.peak_bytes() << 20


def test_equal_steps_are_binomial():
    for n in (1, 2, 9, 30):
        for snapshots in (1, 2, 4):
            tapes = [100] * n
            chain = Chain([1] * n, [1] * n, tapes, 100 + snapshots)
            assert chain.cost() == optimal_advances(n, snapshots)


def test_rounded_sizes_state_a_bound_that_is_kept(seeded):
    above = 0
    for _ in range(60):
        forward, states, tapes = random_chain(seeded, seeded.randint(3, 7))
        budget = least_budget(states, tapes) + 6
        optimum = Chain(forward, states, tapes, budget)
        assert optimum.exact and optimum.bound() == 1
        try:
            rounded = Chain(forward, states, tapes, budget, units=4)
        except BudgetError:
            continue
        assert not rounded.exact and rounded.peak_bytes() <= budget
        assert optimum.cost() <= rounded.cost() <= rounded.bound() * optimum.cost() or (
            optimum.cost() == 0
        )
        above += rounded.cost() > optimum.cost() > 0
    assert above > 3


def test_an_empty_chain_is_an_empty_run():
    assert replay(Chain([], [], [], 0), 0).reverses == 1

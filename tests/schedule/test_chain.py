"""Unequal chains against an exhaustive search over persistent schedules."""

import heapq
from math import inf, nan

import pytest

from retape import BudgetError, PlanError
from retape.schedule import Advance, Chain, least_budget, optimal_advances, replay


def cheapest(forward, states, tapes, budget):
    """Dijkstra over (working step, held steps, steps left); None if impossible.

    A snapshot may only be dropped when its own step is the next to be reversed.
    """
    n = len(forward)
    heap, done, tie = [(0.0, 0, (0, frozenset(), n))], set(), 0
    while heap:
        cost, _, state = heapq.heappop(heap)
        if state in done:
            continue
        done.add(state)
        at, held, left = state
        if left == 0:
            return cost
        used = sum(states[k] for k in held)
        follow = []
        if at is not None:
            if at + 1 <= left - 1:
                follow.append((cost + forward[at], (at + 1, held, left)))
            if at not in held and used + states[at] <= budget:
                follow.append((cost, (at, held | {at}, left)))
            # A stage at..left-1; its own snapshot may go first.
            rest = held - {at}
            room = budget - sum(states[k] for k in rest)
            if all(k < at for k in rest) and sum(tapes[at:left]) <= room:
                follow.append((cost, (None, rest, at)))
        follow += [(cost, (k, held, left)) for k in held]
        for more, new in follow:
            tie += 1
            heapq.heappush(heap, (more, tie, new))
    return None


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


def test_the_cost_is_that_of_an_exhaustive_search(seeded):
    refused = solved = 0
    for _ in range(160):
        forward, states, tapes = random_chain(seeded, seeded.randint(1, 7))
        budget = seeded.randint(1, 30)
        least = cheapest(forward, states, tapes, budget)
        if least is None:
            with pytest.raises(BudgetError):
                Chain(forward, states, tapes, budget)
            assert budget < least_budget(states, tapes)
            refused += 1
            continue
        chain = Chain(forward, states, tapes, budget)
        assert chain.cost() == least == spent(chain)
        assert chain.peak_bytes() <= budget
        assert replay(chain, len(forward)).taped == len(forward)
        solved += 1
    assert refused > 10 and solved > 80


def test_the_least_budget_is_the_least(seeded):
    for _ in range(60):
        forward, states, tapes = random_chain(seeded, seeded.randint(1, 6))
        least = least_budget(states, tapes)
        assert cheapest(forward, states, tapes, least) is not None
        assert cheapest(forward, states, tapes, least - 1) is None


def test_equal_steps_are_binomial():
    for n in (1, 2, 9, 30):
        for snapshots in (1, 2, 4):
            chain = Chain([1] * n, [1] * n, [100] * n, 100 + snapshots)
            assert chain.cost() == optimal_advances(n, snapshots)


def test_rounding_up_keeps_the_budget_and_costs_more(seeded):
    for _ in range(30):
        forward, states, tapes = random_chain(seeded, 12)
        budget = least_budget(states, tapes) * 4
        exact = Chain(forward, states, tapes, budget)
        coarse = Chain(forward, states, tapes, budget, units=12)
        assert coarse.cost() >= exact.cost()
        assert coarse.peak_bytes() <= budget


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
        assert not rounded.exact
        assert optimum.cost() <= rounded.cost() <= rounded.bound() * optimum.cost() or (
            optimum.cost() == 0
        )
        above += rounded.cost() > optimum.cost() > 0
    assert above > 3


def test_dozens_of_steps_are_no_matter(seeded):
    forward, states, tapes = random_chain(seeded, 80)
    chain = Chain(forward, states, tapes, 60, units=10)
    counts = replay(chain, 80)
    assert counts == chain.counts() and chain.peak_bytes() <= 60
    assert chain.cost() == spent(chain)
    assert counts.advances <= chain.sweeps() * 80


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Chain([1], [1, 2], [3], 5), "`forward` has 1 entries, `states` 2"),
        (lambda: Chain([1], [1], [-3], 5), "hold a negative number"),
        (lambda: Chain([1, inf], [1, 1], [1, 1], 5), "a cost that is not finite"),
        (lambda: Chain([1, nan], [1, 1], [1, 1], 5), "a cost that is not finite"),
        (lambda: Chain([1], [1], [1], 5, units=0), "`units=0` cannot be: the budget"),
        (lambda: Chain([1] * 3, [2] * 3, [3] * 3, 4), "least possible is 5 bytes"),
        (
            lambda: Chain([1] * 3, [2] * 3, [3] * 3, 5, units=2),
            "It would do with more than `units=2`",
        ),
        (lambda: Chain([1] * 900, [2] * 900, [3] * 900, 9999), "too large for the dyn"),
    ],
)
def test_what_cannot_be_is_refused(make, text):
    with pytest.raises(PlanError, match=text):
        make()


def test_an_empty_chain_is_an_empty_run():
    assert replay(Chain([], [], [], 0), 0).reverses == 1

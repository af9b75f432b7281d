"""The dynamic programme against an exhaustive search, and against plain chains."""

import heapq
import random
import tracemalloc
from itertools import combinations, pairwise

import pytest

from retape import BudgetError
from retape.engines.eager.plan._dynamic_programme import Optimum, Unit
from retape.schedule import Chain
from tests.schedule.numbers import optimal_advances


def simple(cost: float, tape: int, state: int) -> Unit:
    """A unit whose tape and state share nothing and whose work takes no room."""
    return Unit(cost, cost, cost, tape, tape, state, 0, 0, tape, 0)


def drawn(rng: random.Random, least: int, most: int) -> tuple[list[Unit], list[int]]:
    """Units, and the states before them and after the last."""
    n = rng.randint(least, most)
    states = [0, *(rng.randint(1, 3) for _ in range(n - 1)), 0]
    units = [simple(rng.randint(1, 9), rng.randint(1, 6), states[k]) for k in range(n)]
    return units, states


def widths(states: list[int]) -> list[list[int]]:
    return [states] * len(states)


def cheapest(
    units: list[Unit], states: list[int], budget: int, copies: tuple[int, ...] = ()
) -> float:
    """Dijkstra over what is held: states, tapes, the unit at work, units left.

    Nothing is let go before its unit is the last one left. A state costs a copy when it
    is held and one whenever it is gone back to.
    """
    copies = copies or (0,) * (len(units) + 1)
    heap = [(0.0, 0, 0, (0, frozenset({0}), frozenset(), len(units)))]
    done, tie = set(), 0
    while heap:
        cost, ran, _, now = heapq.heappop(heap)
        if (now, ran) in done:
            continue
        done.add((now, ran))
        at, held, taped, left = now
        if left == 0:
            return cost
        follow = []
        if left - 1 in taped:
            new = (None, held - {left}, taped - {left - 1}, left - 1)
            follow.append((cost, ran, new))
        if at is not None and at < left:
            price = 0.0 if at >= ran else units[at].advance
            far = max(ran, at + 1)
            tapes = taped | {at}
            used = sum(states[k] for k in held)
            if used + sum(units[k].tape_bytes for k in tapes) <= budget:
                follow.append((cost + price, far, (at + 1, held, tapes, left)))
            if at + 1 < left:
                follow.append((cost + price, far, (at + 1, held, taped, left)))
            used += sum(units[k].tape_bytes for k in taped)
            if at not in held and used + states[at] <= budget:
                put = cost + copies[at]
                follow.append((put, ran, (at, held | {at}, taped, left)))
        back = (held - {left}, taped, left)
        follow += [(cost + copies[k], ran, (k, *back)) for k in held]
        for more, far, new in follow:
            tie += 1
            heapq.heappush(heap, (more, far, tie, new))
    return float("inf")


def test_the_cost_is_never_below_an_exhaustive_search_and_mostly_equal() -> None:
    rng = random.Random(0)
    equal = solved = 0
    for _ in range(60):
        units, states = drawn(rng, 1, 5)
        budget = rng.randint(3, 24)
        found = Optimum(units, widths(states), budget).cost
        least = cheapest(units, states, budget)
        assert found >= least
        solved += found < float("inf")
        equal += found == least
    assert solved > 25 and equal > 40


def test_states_in_a_store_cost_copies_and_no_room() -> None:
    rng = random.Random(2)
    equal = solved = dearer = 0
    for _ in range(60):
        n = rng.randint(1, 5)
        states = [0] * (n + 1)
        units = [simple(rng.randint(3, 9), rng.randint(1, 6), 0) for _ in range(n)]
        copies = (0, *(rng.randint(0, 4) for _ in range(n)))
        budget = rng.randint(3, 16)
        found = Optimum(units, widths(states), budget, copies=copies[:n]).cost
        least = cheapest(units, states, budget, copies)
        assert found >= least
        solved += found < float("inf")
        equal += found == least
        dearer += found > Optimum(units, widths(states), budget).cost
    assert solved > 25 and equal > 30 and dearer > 10


def test_of_states_that_a_run_holds_those_stay_that_are_worth_their_room() -> None:
    rng = random.Random(3)
    given_up = kept = 0
    for _ in range(60):
        units, states = drawn(rng, 2, 7)
        held = [0, *(k for k in range(1, len(units)) if rng.random() < 0.5)]
        budget = rng.randint(3, 30)

        def cost(stay: tuple[int, ...]) -> float:
            room, total = budget, 0.0  # noqa: B023
            for s, k in pairwise([0, *stay, len(units)]):  # noqa: B023
                parts = units[s:k], widths(states[s : k + 1])  # noqa: B023
                total += Optimum(*parts, max(0, room), held=[0]).cost
                room -= states[k]  # noqa: B023
            return total if room >= 0 else float("inf")

        best = Optimum(units, widths(states), budget, held=held)
        ways = [each for k in range(len(held)) for each in combinations(held[1:], k)]
        assert best.cost == min(map(cost, ways))
        if best.cost < float("inf"):
            own, *later = best.descents()
            assert cost(own.stores) == best.cost and not own.taped
            assert sorted(u for each in later for u in each.taped) == [
                *range(len(units))
            ]
            kept += bool(own.stores)
            given_up += own.stores != tuple(held[1:])
    assert kept > 10 and given_up > 10


def test_taping_on_the_way_is_never_dearer_than_a_plain_chain() -> None:
    rng = random.Random(1)
    better = 0
    for _ in range(40):
        n = rng.randint(2, 9)
        states = [0, *(rng.randint(1, 4) for _ in range(n - 1)), 0]
        tapes = [rng.randint(1, 9) for k in range(n)]
        costs = [rng.randint(1, 9) for _ in range(n)]
        units = [simple(costs[k], tapes[k], states[k]) for k in range(n)]
        own = [tape + state for tape, state in zip(tapes, states, strict=False)]
        budget = sum(own) * rng.randint(40, 90) // 100
        try:
            chain = Chain(costs, states[:-1], own, budget)
        except BudgetError:
            continue
        found = Optimum(units, widths(states), budget).cost
        assert found <= chain.cost()
        better += found < chain.cost()
    assert better > 5


def test_equal_units_cost_what_binomial_schedules_cost() -> None:
    for n in (2, 9, 30):
        for snapshots in (1, 2, 4):
            states = [0] + [1] * n
            chain = Optimum([simple(1, 100, 1)] * n, widths(states), 100 + snapshots)
            # Ours counts the state at work, which may now and then be a snapshot's.
            assert optimal_advances(n, snapshots + 1) <= chain.cost
            assert chain.cost <= optimal_advances(n, snapshots)


def test_descents_do_what_the_cost_says() -> None:
    rng = random.Random(2)
    for _ in range(30):
        units, states = drawn(rng, 2, 20)
        chain = Optimum(units, widths(states), 30)
        if chain.cost == float("inf"):
            continue
        descents = chain.descents()
        cost = 0.0
        for each in descents[1:]:
            parent = descents[each.parent]
            assert each.start in (parent.start, *parent.stores)
            cost += sum(unit.advance for unit in units[each.start : each.stop])
        assert cost == chain.cost
        taped = sorted(unit for each in descents for unit in each.taped)
        assert taped == list(range(len(units)))


def test_no_schedule_costs_without_end() -> None:
    units = [simple(1, 5, 2) for _ in range(12)]
    assert Optimum(units, widths([0] + [2] * 12), 3).cost == float("inf")


def test_no_units_are_no_work() -> None:
    chain = Optimum([], [[0]], 10)
    assert chain.cost == 0.0 and chain.descents() == []


@pytest.mark.parametrize(("count", "budget", "most"), [(50, 4e6, 1.5), (50, 5e7, 9)])
def test_the_table_takes_a_few_megabytes(
    count: int, budget: float, most: float
) -> None:
    size = int(budget) // count
    units = [Unit(1, 1, 1, size // 2, size // 2, 9, size, size, size, 9)] * count
    tracemalloc.start()
    Optimum(units, [[size // 5] * (count + 1)] * (count + 1), int(budget)).descents()
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < most * 1e6

"""The tables of tiers and of chains against their recurrences, written down plainly."""

import random
from functools import cache
from math import inf

import pytest

from retape import Tier
from retape.schedule import Chain, Hierarchy, replay
from tests.schedule.test_chain import least_budget

AMOUNTS = (0, 0.5, 1, 3, 8)


def least_of_tiers(stages, tiers):
    """The least cost beside taping, by recursion over all free slots."""

    def given(room, k, by):
        return tuple(free + by * (i == k) for i, free in enumerate(room))

    @cache
    def kept_nowhere(n, room):
        if n == 1:
            return 0.0
        options = [
            tier.write + kept(k, n, given(room, k, -1))
            for k, tier in enumerate(tiers)
            if room[k]
        ]
        return min(options, default=inf)

    @cache
    def kept(k, n, room):
        return min(
            i + kept_nowhere(n - i, room) + tiers[k].read + read(k, i, room)
            for i in range(1, n)
        )

    def read(k, n, room):
        if n == 1:
            return 0.0
        return min(kept(k, n, room), kept_nowhere(n, given(room, k, 1)))

    return kept_nowhere(stages, tuple(tier.snapshots for tier in tiers))


def least_of_chain(forward, states, tapes, budget):
    """The least cost of a chain, by recursion over all bytes that are free."""

    @cache
    def value(a, b, room):
        if sum(tapes[a:b]) <= room:
            return 0.0
        if tapes[a] > room:
            return inf
        beside = room - states[a]
        return min(
            value(a + 1, b, room - tapes[a]),
            min(
                (
                    sum(forward[a:k]) + value(k, b, beside) + value(a, k, room)
                    for k in range(a + 1, b)
                ),
                default=inf,
            ),
        )

    return value(0, len(forward), budget)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_tiers_cost_what_the_recurrence_says(count):
    draw = random.Random(count)
    for _ in range(8):
        n = draw.randint(2, 24)
        tiers = [
            Tier(f"t{i}", draw.randint(0, 3), *draw.choices(AMOUNTS, k=2))
            for i in range(count)
        ]
        if not any(tier.snapshots for tier in tiers):
            continue
        schedule = Hierarchy(n, tiers)
        assert schedule.exact
        least = least_of_tiers(n, tuple(tiers))
        assert schedule.cost() == pytest.approx(2 * n + least)
        assert replay(schedule, n) == schedule.counts()


def test_chains_cost_what_the_recurrence_says():
    draw = random.Random(3)
    for _ in range(20):
        n = draw.randint(1, 14)
        sizes = [[draw.randint(1, 9) for _ in range(n)] for _ in "fst"]
        budget = least_budget(*sizes[1:]) + draw.randint(0, 20)
        chain = Chain(*sizes, budget)
        assert chain.exact and chain.cost() == least_of_chain(*sizes, budget)
        assert replay(chain, n) == chain.counts()

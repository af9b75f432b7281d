"""The tables of tiers and of chains against their recurrences, written down plainly."""

import random
from functools import cache
from math import inf

import pytest

from retape import Tier
from retape.schedule import Hierarchy, replay

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

"""Weights of the intervals that cover each position, against counting them."""

import random

import pytest

from retape.schedule._running_sums import running_sums


def test_no_interval_covers_nothing():
    assert running_sums([], 3) == [0, 0, 0]
    assert running_sums([], 0) == []


def test_an_empty_interval_weighs_nowhere():
    assert running_sums([(1, 1, 9), (3, 3, 9)], 3) == [0, 0, 0]


@pytest.mark.parametrize("seed", range(20))
def test_every_position_counts_what_covers_it(seed):
    draw = random.Random(seed)
    length = draw.randint(1, 12)
    ends = [sorted(draw.choices(range(length + 1), k=2)) for _ in range(seed)]
    intervals = [(a, b, draw.randint(0, 99)) for a, b in ends]
    assert running_sums(intervals, length) == [
        sum(w for a, b, w in intervals if a <= p < b) for p in range(length)
    ]

"""Schedules with NumPy and without it, and near the least beyond the tables."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from retape.schedule import replay
from tests.schedule import tables


@pytest.fixture(scope="session")
def without_numpy():
    command = [sys.executable, "-m", "tests.schedule.tables"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def with_numpy():
    return list(tables.told())


@pytest.mark.slow
def test_short_ones_are_the_same_action_by_action(with_numpy, without_numpy):
    compared = 0
    for one, other in zip(with_numpy, without_numpy, strict=True):
        if one[0] and other[0]:
            assert list(one) == other
            compared += 1
    assert compared >= 3 * tables.SHORT


@pytest.mark.slow
def test_beyond_the_exact_table_a_bound_is_stated_and_kept(with_numpy, without_numpy):
    pairs = zip(with_numpy, without_numpy, strict=True)
    beyond = [(one, other) for one, other in pairs if one[0] and not other[0]]
    assert len(beyond) >= 2
    for (_, _, least, _), (_, bound, cost, _) in beyond:
        assert least * (1 - 1e-12) <= cost <= bound * least * (1 + 1e-12)
        assert cost <= 1.1 * least


def test_all_of_them_are_legal_and_counted_as_predicted():
    for schedule in tables.schedules():
        n = getattr(schedule, "length", None)
        n = len(schedule.forward) if n is None else n
        assert replay(schedule, n, stage=None) == schedule.counts()

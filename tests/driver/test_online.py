"""Runs whose end is not known, over two tiers and with mixed slots."""

import os

import numpy as np
import pytest

import retape
from retape import DiskStore, MemoryStore, TieredStore

STEPS = 61

PLANS = [
    retape.tiers(memory=1, disk=2),
    retape.tiers(memory=2, disk=3, stage=3),
    retape.tiers(memory="200 B", disk="1 kB"),
    retape.tiers(memory=2, disk=4),
    retape.fixed_space(snapshots=4, store={"state", "tape"}),
    retape.fixed_space(snapshots=3, stage=2, store={"state", "tape"}),
]


class Crash(Exception):
    """Stands for the end of a process."""


def run(plan, steps=STEPS, store=None, left=None):
    """x' = x + sin(x) / 10 in place until a counter says that it is the end."""

    def step(x, k):
        if left is not None:
            left[0] -= 1
            if left[0] < 0:
                raise Crash
        x[0] += np.sin(x[0]) / 10
        x[1] += 1
        return x

    def reverse_step(x, k, g):
        return [g[0] * (1 + np.cos(x[0]) / 10), g[1]]

    x0 = [np.arange(3.0), np.zeros(1)]
    return retape.adjoint(
        retape.Program(step, reverse_step, done=lambda x: x[1][0] >= steps),
        x0,
        seed=lambda x: [2 * x[0], np.zeros(1)],
        plan=plan,
        store=MemoryStore() if store is None else store,
        key="a test",
    )


def reference(steps=STEPS):
    states = [np.arange(3.0)]
    for _ in range(steps):
        states.append(states[-1] + np.sin(states[-1]) / 10)
    g = 2 * states[-1]
    for x in reversed(states[:-1]):
        g = g * (1 + np.cos(x) / 10)
    return g


@pytest.mark.parametrize("plan", PLANS, ids=repr)
@pytest.mark.parametrize("steps", [0, 1, 2, 3, STEPS])
def test_the_gradient_is_that_of_all_states_kept(plan, steps):
    found = run(plan, steps)
    np.testing.assert_array_equal(found.cotangent[0], reference(steps))
    assert found.report.length == steps


@pytest.mark.parametrize("plan", PLANS, ids=repr)
@pytest.mark.parametrize("tiered", [False, True])
def test_a_run_that_is_killed_goes_on(plan, tiered, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    crashes, found = 0, None
    while found is None:
        store = DiskStore(tmp_path, every=0)
        if tiered:
            store = TieredStore(MemoryStore(capacity=1), store)
        try:
            found = run(plan, store=store, left=[23 + 11 * (crashes % 5)])
        except Crash:
            crashes += 1
            assert crashes < 90
    assert crashes
    np.testing.assert_array_equal(found.cotangent[0], reference())


def test_measured_memory_is_beside_a_prediction():
    found = retape.measure(
        retape.Program(lambda x, k: x + 1, lambda x, k, g: g, done=lambda x: x >= 20),
        0.0,
        seed=lambda x: 1.0,
        plan=retape.tiers(memory=1, disk=2),
        store=MemoryStore(),
    )
    assert found.report.memory is not None

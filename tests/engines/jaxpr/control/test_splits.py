"""The traced rules and the counts of real sweeps, against the schedules."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax
from retape.schedule import OnlineBinomial, replay
from tests.engines.jaxpr.support.seams import SPLITS, sweeps
from tests.schedule.numbers import (
    beta,
    first_split,
    least_sweeps,
    treeverse_split,
)

BIG = [2**31 - 1, 2**31, 2**32 + 1, 10**10]
GRID = [(n, s) for n in [*range(2, 61), *BIG] for s in (2, 3, 4, 5, 8, 13, 40)]


def traced(rule: Callable[..., Any], *columns: Any) -> np.ndarray:
    wide = [jnp.asarray(np.asarray(c, np.int64)) for c in columns]
    return np.asarray(jax.jit(jax.vmap(rule))(*wide))


def test_least_sweeps_and_their_reach() -> None:
    lengths, snapshots = zip(*GRID, strict=True)
    t, reach = jax.jit(jax.vmap(sweeps))(np.asarray(lengths), np.asarray(snapshots))
    want = [least_sweeps(n, s) for n, s in GRID]
    assert t.tolist() == want
    assert reach.tolist() == [beta(s, k) for (_, s), k in zip(GRID, want, strict=True)]


@pytest.mark.slow("binomial")
@pytest.mark.parametrize("name", ["binomial", "bisection"])
def test_splits_are_those_of_the_schedules(name: Any) -> None:
    lengths, snapshots = zip(*GRID, strict=True)
    got = traced(SPLITS[name], lengths, snapshots, [0] * len(GRID))
    assert got.tolist() == [first_split(name, n, s) for n, s in GRID]


def test_the_treeverse_split_is_that_of_the_schedules() -> None:
    grid = [(n, d, t) for n in range(2, 40) for d in (2, 3, 7) for t in (1, 2, 5)]
    got = traced(SPLITS["treeverse"], *zip(*grid, strict=True))
    assert got.tolist() == [treeverse_split(n, d, t) for n, d, t in grid]


def test_narrow_splits_are_those_of_the_schedules() -> None:
    """By 32 bits, as a sweep of so many stages has them."""
    grid = [(n, s) for n in (2, 3, 17, 999, 10**5, 10**6) for s in (2, 3, 5, 40, 700)]
    lengths, snapshots = np.asarray(grid, np.int32).T
    cut = jax.jit(jax.vmap(SPLITS["binomial"], (0, 0, None)))
    got = cut(lengths, snapshots, np.int32(0))
    assert got.dtype == np.int32
    assert got.tolist() == [first_split("binomial", n, s) for n, s in grid]


def test_a_rule_that_is_off_by_one_is_caught() -> None:
    lengths, snapshots = zip(*GRID, strict=True)
    got = traced(lambda n, s: SPLITS["binomial"](n + 1, s, 0), lengths, snapshots)
    assert got.tolist() != [first_split("binomial", n, s) for n, s in GRID]


# Counts of real sweeps ----------------------------------------------------------------


def turn(c: Any) -> Any:
    return jnp.sin(c) * 1.1


def known(x: Any, n: int) -> Any:
    """A run of n + 2 steps: the block before the loop is one, that after another."""
    return jax.lax.scan(lambda c, _: (turn(c), None), x, None, length=n)[0]


def unknown(x: Any, n: Any) -> Any:
    return jax.lax.fori_loop(0, n, lambda i, c: turn(c), x)


def slope_of(n: int) -> float:
    x, product = 0.5, 1.0
    for _ in range(n):
        x, product = np.sin(x) * 1.1, product * np.cos(x) * 1.1
    return product


@pytest.mark.usefixtures("opened")
@pytest.mark.parametrize("split", ["binomial", "bisection", "treeverse"])
@pytest.mark.parametrize(("n", "d", "alpha"), [(13, 3, 1), (30, 2, 4), (11, 1, 2)])
def test_counts_of_a_known_run(n: int, d: int, alpha: int, split: Any) -> None:
    plan = retape.fixed_space(snapshots=d, stage=alpha, split=split)
    run = functools.partial(known, n=n - 2)
    _, slope, report = retape.jax.measure(run, 0.5, plan=plan)
    want = replay(plan.schedule(n), n, capacity=d, stage=alpha)
    assert report.length == n == want.taped
    prediction = plan.predict(n)
    assert report.advances == want.advances == prediction.advances
    assert report.stores == want.stores
    assert report.peak_snapshots == want.peak_snapshots == prediction.peak_snapshots
    np.testing.assert_allclose(slope, slope_of(n - 2), rtol=1e-12)


STEPS = [0, 1, 2, 3, 5, 7, 12, 20, 21, 34, 61, 180]


@pytest.mark.slow("2-1-device", "5-1-device")
@pytest.mark.parametrize(
    ("d", "alpha", "loops"),
    [
        (1, 1, "host"),
        (2, 1, "device"),
        (3, 2, "host"),
        (5, 1, "device"),
        (5, 1, "host"),
        (8, 3, "host"),
    ],
)
def test_counts_of_runs_whose_length_is_found_out(
    d: int, alpha: int, loops: Any
) -> None:
    """One compiled sweep for all lengths, placed as the online schedule says."""
    plan = retape.fixed_space(snapshots=d, stage=alpha)
    for n in STEPS:
        _, slope, report = retape.jax.measure(unknown, 0.5, n, plan=plan, loops=loops)
        steps = report.length
        actions = OnlineBinomial(d, alpha).actions(steps)
        want = replay(actions, steps, capacity=d, stage=alpha)
        # The last stage is advanced, too: that is how the end is found.
        last = steps - (-(-steps // alpha) - 1) * alpha
        assert report.advances == want.advances + last
        assert report.peak_snapshots <= d
        np.testing.assert_allclose(slope, slope_of(n), rtol=1e-12)


@pytest.mark.parametrize("split", ["bisection", "treeverse"])
@pytest.mark.parametrize(("d", "alpha"), [(2, 1), (4, 3)])
def test_counts_after_a_counting_pass(d: int, alpha: int, split: Any) -> None:
    plan = retape.fixed_space(snapshots=d, stage=alpha, split=split)
    for n in STEPS:
        _, slope, report = retape.jax.measure(unknown, 0.5, n, plan=plan)
        steps = report.length
        want = replay(plan.schedule(steps), steps, capacity=d, stage=alpha)
        assert report.advances == steps + want.advances
        np.testing.assert_allclose(slope, slope_of(n), rtol=1e-12)

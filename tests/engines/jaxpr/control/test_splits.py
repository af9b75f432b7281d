"""The traced rules and the counts of real sweeps, against the schedules.

Integers of 32 bits: where they are chosen they hold everything, and runs go on.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax
from retape.schedule import OnlineBinomial, replay
from retape.schedule._split import RULES
from tests.engines.jaxpr.support.seams import TRACED, loopless
from tests.judges.pairwise import dealt
from tests.schedule.numbers import (
    beta,
    first_split,
    least_sweeps,
    treeverse_split,
)

BIG = [2**31 - 1, 2**31, 2**32 + 1, 10**10]
GRID = [(n, s) for n in [*range(2, 61), *BIG] for s in (2, 3, 4, 5, 8, 13, 40)]


@pytest.mark.parametrize("most", [None, 40, 63, 64, 700])
def test_least_sweeps_and_their_reach(most: int | None) -> None:
    """By a loop, and in tables of so many snapshots, as far as their rows go."""
    more = [(n, s) for n in (65, 10**6, 10**10) for s in (63, 64, 700)]
    tried = [(n, s) for n, s in GRID + more if s <= (most or 700)]
    want = {(n, s): least_sweeps(n, s) for n, s in tried}
    tried = [pair for pair in tried if most is None or want[pair] < 256]
    numbers = TRACED if most is None else loopless(most)
    each = map(np.asarray, zip(*tried, strict=True))
    t, reach = jax.jit(jax.vmap(numbers.sweeps))(*each)
    assert t.tolist() == [want[pair] for pair in tried]
    assert reach.tolist() == [beta(s, want[n, s]) for n, s in tried]


NARROW = [(n, s) for n in (2, 3, 17, 999, 10**5, 10**6) for s in (2, 3, 5, 40, 700)]
TREES = [(n, d, t) for n in range(2, 40) for d in (2, 3, 7) for t in (1, 2, 5)]
CASES: dict[str, tuple[Any, list[Any], Any]] = {
    "binomial": (np.int64, GRID, functools.partial(first_split, "binomial")),
    "bisection": (np.int64, GRID, functools.partial(first_split, "bisection")),
    "treeverse": (np.int64, TREES, treeverse_split),
    # By 32 bits, as a sweep of so many stages has them.
    "binomial, narrow": (np.int32, NARROW, functools.partial(first_split, "binomial")),
}


@pytest.mark.slow("binomial")
@pytest.mark.parametrize("name", CASES)
def test_splits_are_those_of_the_schedules(name: str, off: int = 0) -> None:
    dtype, grid, wanted = CASES[name]
    rule: Any = functools.partial(RULES[name.partition(",")[0]], numbers=TRACED)
    lengths, *others = np.asarray([(*row, 0)[:3] for row in grid], dtype).T
    got = np.asarray(jax.jit(jax.vmap(rule))(lengths + off, *others))
    assert got.dtype == dtype
    assert got.tolist() == [wanted(*row) for row in grid]


def test_a_rule_that_is_off_by_one_is_caught() -> None:
    with pytest.raises(AssertionError):
        test_splits_are_those_of_the_schedules("binomial, narrow", off=1)


# Counts of real sweeps ----------------------------------------------------------------


def turn(c: Any) -> Any:
    return jnp.sin(c) * 1.1


def known(x: Any, n: int) -> Any:
    """A run of n + 2 steps: the block before the loop is one, that after another."""
    return jax.lax.scan(lambda c, _: (turn(c), None), x, None, length=n)[0]


def unknown(x: Any, n: Any) -> Any:
    return jax.lax.fori_loop(0, n, lambda i, c: turn(c), x)


def dear(x: Any, n: Any) -> Any:
    """Steps that are not counted first: snapshots are placed while they are made."""
    return jnp.mean(unknown(jnp.full(300, x), n))


def slope_of(n: int) -> float:
    x, product = 0.5, 1.0
    for _ in range(n):
        x, product = np.sin(x) * 1.1, product * np.cos(x) * 1.1
    return product


@pytest.mark.usefixtures("opened")
@pytest.mark.parametrize(
    ("size", "split"),
    dealt([(13, 3, 1), (30, 2, 4), (11, 1, 2)], ["binomial", "bisection", "treeverse"]),
)
def test_counts_of_a_known_run(size: tuple[int, int, int], split: Any) -> None:
    n, d, alpha = size
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
FOUND_OUT: list[tuple[int, int, Any, Any]] = [
    (1, 1, None, "host"),
    (2, 1, None, "device"),
    (3, 2, None, "host"),
    (5, 1, None, "device"),
    (5, 1, None, "host"),
    (8, 3, None, "host"),
    (4, 3, "binomial", None),
    (2, 1, "bisection", None),
    (4, 3, "bisection", None),
    (2, 1, "treeverse", None),
    (4, 3, "treeverse", None),
]


@pytest.mark.slow(
    "2-1-None-device",
    "5-1-None-device",
    "5-1-None-host",
    "3-2-None-host",
    "4-3-treeverse-None",
    "2-1-bisection-None",
)
@pytest.mark.parametrize(("d", "alpha", "split", "loops"), FOUND_OUT)
def test_counts_of_runs_whose_length_is_found_out(
    d: int, alpha: int, split: Any, loops: Any
) -> None:
    """One compiled sweep for all lengths, placed as the schedule says."""
    plan = retape.fixed_space(snapshots=d, stage=alpha, split=split or "binomial")
    run = unknown if split else dear
    for n in STEPS:
        _, slope, report = retape.jax.measure(run, 0.5, n, plan=plan, loops=loops)
        steps = report.length
        online = OnlineBinomial(d, alpha).actions(steps)
        actions = plan.schedule(steps) if split else online
        want = replay(actions, steps, capacity=d, stage=alpha)
        # The last stage is advanced, too: that is how the end is found. Cheap steps are
        # counted beforehand, and so are all under other splits.
        last = steps - (-(-steps // alpha) - 1) * alpha
        assert report.advances == want.advances + (steps if split else last)
        assert report.peak_snapshots <= d
        np.testing.assert_allclose(slope, slope_of(n), rtol=1e-12)


# Narrow integers ----------------------------------------------------------------------

WIDE = r"stablehlo\.(?:divide|remainder|multiply)\b[^\n]*tensor<i64>"


@pytest.mark.parametrize("loops", ["host", "device"])
def test_a_sweep_of_known_length_computes_nothing_with_64_bits(loops: Any) -> None:
    plan = retape.fixed_space(snapshots=6, stage=5)
    texts = []
    for run, args in ((functools.partial(known, n=500), ()), (unknown, (500,))):
        fun = lambda x, *n, run=run: jnp.sum(run(x, *n))  # noqa: E731
        gradient = jax.jit(retape.jax.grad(fun, plan=plan, loops=loops))
        with jax.enable_x64(False):
            texts.append(gradient.lower(jnp.ones(500), *args).as_text())
    assert "while" in texts[0] and not re.findall(WIDE, texts[0])
    assert re.findall(WIDE, texts[1]), "this looks for nothing"


@pytest.mark.slow
@pytest.mark.usefixtures("opened")
@pytest.mark.parametrize("snapshots", [3, 700])
def test_no_narrow_number_is_too_small_for_a_million_steps(snapshots: int) -> None:
    """Products of the split are the largest where 32 bits still do: at 700 of them."""
    plan = retape.fixed_space(snapshots=snapshots, stage=1)
    done = retape.jax.measure(functools.partial(known, n=10**6), 0.5, plan=plan)
    predicted = plan.predict(done.report.length)
    assert done.report.length > 10**6
    assert done.report.advances == predicted.advances
    assert done.report.peak_snapshots == predicted.peak_snapshots == snapshots


@pytest.mark.slow
@pytest.mark.parametrize(
    ("split", "loops"),
    [
        ("binomial", "host"),
        ("binomial", "device"),
        ("bisection", "device"),
        ("treeverse", "host"),
    ],
)
def test_a_run_that_is_longer_than_one_go_goes_on(
    split: Any, loops: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A go of six steps in place of 2**30, over runs of up to 61."""
    monkeypatch.setattr("retape.engines.jaxpr.sweep._sweep.LONGEST_GO", 6)
    monkeypatch.setattr("retape.engines.jaxpr.sweep._device_sweep.LONGEST_GO", 6)
    plan = retape.fixed_space(snapshots=3, stage=2, split=split)
    for n in (0, 5, 6, 7, 61):
        done = retape.jax.measure(unknown, 0.5, n, plan=plan, loops=loops)
        np.testing.assert_allclose(done.gradient, slope_of(n), rtol=1e-12)
        assert n <= done.report.length <= n + 2
        assert done.report.advances < 20 * (n + 2)

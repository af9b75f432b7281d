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
from retape.engines.jaxpr._pipeline import compile_program
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._integers import FOREVER, INT
from retape.engines.jaxpr.control._next_action import cut
from retape.engines.jaxpr.control._online_placement import (
    Placement,
    after_placing,
    initial_placement,
    which_leaves,
)
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.control._splits import SPLITS, sweeps
from retape.engines.jaxpr.jaxprs._row_ops import put, row
from retape.engines.jaxpr.sweep._sweep_program import sweep
from retape.schedule import (
    OnlineBinomial,
    Schedule,
    beta,
    binomial_split,
    bisection_split,
    least_sweeps,
    replay,
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


@pytest.mark.parametrize(
    ("name", "rule"),
    [("binomial", binomial_split), ("bisection", bisection_split)],
)
def test_splits_are_those_of_the_schedules(
    name: str, rule: Callable[[int, int], int]
) -> None:
    lengths, snapshots = zip(*GRID, strict=True)
    got = traced(SPLITS[name], lengths, snapshots, [0] * len(GRID))
    assert got.tolist() == [rule(n, s) for n, s in GRID]


def test_the_treeverse_split_is_that_of_the_schedules() -> None:
    grid = [(n, d, t) for n in range(2, 40) for d in (2, 3, 7) for t in (1, 2, 5)]
    got = traced(SPLITS["treeverse"], *zip(*grid, strict=True))
    assert got.tolist() == [treeverse_split(n, d, t) for n, d, t in grid]


@pytest.mark.slow
def test_in_a_batch_what_nobody_asks_for_is_not_searched_for() -> None:
    # A loop in a batch runs for all as soon as one asks; the other's end is unknown.
    ends = jnp.asarray([30, FOREVER])

    def ahead(end: Any) -> Any:
        state = {"here": INT(0), "newest": jnp.int32(0), "end": end}
        state |= {"sweeps": jnp.zeros(3, jnp.int64)}
        return cut(state, end < FOREVER, 3, "binomial", sweeps)

    assert jax.vmap(ahead)(ends).tolist() == [binomial_split(30, 3), 0]


def test_a_rule_that_is_off_by_one_is_caught() -> None:
    lengths, snapshots = zip(*GRID, strict=True)
    got = traced(lambda n, s: SPLITS["binomial"](n + INT(1), s, 0), lengths, snapshots)
    assert got.tolist() != [binomial_split(n, s) for n, s in GRID]


# Counts of real sweeps ----------------------------------------------------------------


def turn(c: Any) -> Any:
    return jnp.sin(c) * 1.1


def known(n: int) -> Compiled:
    """A run of n steps: the block before the loop is one, the block after another."""

    def fun(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (turn(c), None), x, None, length=n)[0]

    jaxpr = jax.make_jaxpr(fun)(0.5)
    return compile_program(jaxpr, [True], grain=0)


@functools.cache
def unknown() -> Compiled:
    def fun(x: Any, n: Any) -> Any:
        return jax.lax.fori_loop(0, n, lambda i, c: turn(c), x)

    return compile_program(jax.make_jaxpr(fun)(0.5, 3), [True, False], grain=0)


def run(compiled: Compiled, settings: Settings, *args: Any, jit: bool = True) -> Any:
    def whole(*args: Any) -> Any:
        outs, cotangents, counts = sweep(
            compiled, settings, [*args, *compiled.constants], [jnp.ones(())]
        )
        return outs[0], cotangents[0], counts

    return (jax.jit(whole) if jit else whole)(*args)


def agrees(counts: Any, want: Any, n: int) -> None:
    assert int(counts.steps) == n == want.taped
    assert int(counts.advances) == want.advances
    assert int(counts.stores) == want.stores
    assert int(counts.peak_snapshots) == want.peak_snapshots


@pytest.mark.parametrize("split", ["binomial", "bisection", "treeverse"])
@pytest.mark.parametrize(("n", "d", "alpha"), [(13, 3, 1), (30, 2, 4), (11, 1, 2)])
def test_counts_of_a_known_run(n: int, d: int, alpha: int, split: Any) -> None:
    compiled = known(n - 2)
    assert compiled.program.length == n
    plan = retape.fixed_space(snapshots=d, stage=alpha, split=split)
    resolved = plan.resolve(n)
    settings = Settings(resolved.d, alpha, split, "online", resolved.t)
    _, slope, counts = run(compiled, settings, jnp.asarray(0.5))
    want = replay(plan.schedule(n), n, capacity=d, stage=alpha)
    agrees(counts, want, n)
    prediction = plan.predict(n)
    assert int(counts.advances) == prediction.advances
    assert int(counts.peak_snapshots) == prediction.peak_snapshots
    np.testing.assert_allclose(slope, slope_of(n - 2), rtol=1e-12)


def slope_of(n: int) -> float:
    x, product = 0.5, 1.0
    for _ in range(n):
        x, product = np.sin(x) * 1.1, product * np.cos(x) * 1.1
    return product


STEPS = [0, 1, 2, 3, 5, 7, 12, 20, 21, 34, 61]


@pytest.mark.parametrize(("d", "alpha"), [(1, 1), (2, 1), (3, 2), (5, 1), (8, 3)])
def test_counts_of_runs_whose_length_is_found_out(d: int, alpha: int) -> None:
    """One compiled sweep for all lengths, placed as the online schedule says."""
    whole = jax.jit(functools.partial(run, unknown(), Settings(d, alpha), jit=False))
    for n in STEPS:
        _, slope, counts = whole(jnp.asarray(0.5), jnp.asarray(n))
        steps = int(counts.steps)
        want = replay(
            OnlineBinomial(d, alpha).actions(steps), steps, capacity=d, stage=alpha
        )
        # The last stage is advanced, too: that is how the end is found.
        last = steps - (-(-steps // alpha) - 1) * alpha
        assert int(counts.advances) == want.advances + last
        assert int(counts.peak_snapshots) <= d
        np.testing.assert_allclose(slope, slope_of(n), rtol=1e-12)


@pytest.mark.slow("2-cpu")
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("snapshots", [2, 3, 4, 5])
def test_what_is_kept_is_what_the_schedule_keeps(
    snapshots: int, platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every decision of the traced placement, over all stages that depart from it.

    Capsules are written as a sweep writes them: each waits in the first free slot, and
    must be found later where the placement says that it is.
    """

    # An accelerator's arithmetic is another, and runs here as well.
    monkeypatch.setattr(jax, "default_backend", lambda: platform)

    def ask(state: Placement, stage: Any) -> tuple[Placement, Any]:
        at = put(state.at, stage, row(state.slot, state.held))
        state = state._replace(at=at)
        state = after_placing(state, stage, which_leaves(state, stage))
        return state, (jnp.take(state.at, state.slot), state.slot, state.held)

    _, (at, slots, held) = jax.lax.scan(
        ask, initial_placement(snapshots), np.arange(180)
    )
    state, contents = OnlineBinomial(snapshots).begin(), [-1] * (snapshots + 1)
    waits = 0
    for stage in range(180):
        contents[waits] = stage
        state, _ = state.place(stage)
        assert int(held[stage]) == len(state.positions)
        assert tuple(at[stage, : held[stage]].tolist()) == state.positions
        assert sorted(slots[stage].tolist()) == list(range(snapshots + 1))
        found = [contents[slot] for slot in slots[stage, : held[stage]].tolist()]
        assert tuple(found) == state.positions
        waits = int(slots[stage, held[stage]])


@pytest.mark.parametrize(("d", "alpha"), [(2, 1), (4, 3)])
def test_counts_after_a_counting_pass(d: int, alpha: int) -> None:
    settings = Settings(d, alpha, "binomial", "count")
    whole = jax.jit(functools.partial(run, unknown(), settings, jit=False))
    for n in STEPS:
        _, slope, counts = whole(jnp.asarray(0.5), jnp.asarray(n))
        steps = int(counts.steps)
        want = replay(Schedule(steps, d, alpha), steps, capacity=d, stage=alpha)
        assert int(counts.advances) == steps + want.advances
        np.testing.assert_allclose(slope, slope_of(n), rtol=1e-12)


def test_counts_do_not_depend_on_jit() -> None:
    args = jnp.asarray(0.5), jnp.asarray(9)
    inside = run(unknown(), Settings(2, 1), *args)
    outside = run(unknown(), Settings(2, 1), *args, jit=False)
    numbers = [[int(c) for c in run[2] if c is not None] for run in (inside, outside)]
    assert numbers[0] == numbers[1] and len(numbers[0]) >= 4

"""Integers of 32 bits: where they are chosen they hold everything, and runs go on."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import retape
import retape.jax
from retape.engines.jaxpr._pipeline import compile_program
from retape.engines.jaxpr.control._integers import stage_type, step_type
from retape.engines.jaxpr.control._reach_table import sweeps_at_once
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.control._splits import SPLITS, sweeps
from retape.engines.jaxpr.sweep import _device_sweep, _sweep
from retape.engines.jaxpr.sweep._sweep_program import sweep
from retape.schedule import binomial_split, least_sweeps

LARGEST = 2**31 - 1


def test_what_is_wide_and_what_is_narrow() -> None:
    assert stage_type(10**6, 1, 700, 0) is np.int32
    assert stage_type(10**6, 1, 800, 0) is np.int64
    assert stage_type(10**4, 1, 10, 10**6) is np.int64  # sweeps that are spent
    assert stage_type(2**31 - 2, 2**20, 10, 0) is np.int64
    assert step_type(LARGEST - 1) is np.int32
    assert step_type(LARGEST) is np.int64


@given(st.integers(2, 10**7), st.integers(2, 10**4))
def test_no_product_of_a_narrow_split_is_too_large(stages: int, snapshots: int) -> None:
    """The products of `binomial_split`, by exact integers."""
    if stage_type(stages, 1, snapshots, 0) is np.int64:
        return
    for s in {2, 3, min(snapshots, 40), snapshots}:
        # The longest interval that s snapshots are ever left with is the whole.
        t = least_sweeps(stages, s)
        reach, products = 1, [0]
        for k in range(1, t + 1):
            products.append(reach * (s + k))
            reach = reach * (s + k) // k
        full = reach * t // (s + t)
        right = full * s // max(1, s + t - 1)
        products += [reach * t, full * s, right * (s - 1), right * max(0, t - 1)]
        assert max(products) <= LARGEST, (stages, s)


@pytest.mark.parametrize("count", [sweeps, sweeps_at_once])
def test_narrow_splits_are_those_of_the_schedules(count: Any) -> None:
    grid = [(n, s) for n in (2, 3, 17, 999, 10**5, 10**6) for s in (2, 3, 5, 40, 700)]
    lengths, snapshots = np.asarray(grid, np.int32).T

    def cut(n: Any, s: Any) -> Any:
        return SPLITS["binomial"](n, s, np.int32(0), count)

    with jax.enable_x64(True):
        got = jax.jit(jax.vmap(cut))(lengths, snapshots)
    assert got.dtype == np.int32
    # Where the table ends a cut is another one: two snapshots and more than 33,000.
    exact = [i for i, (n, s) in enumerate(grid) if count is sweeps or n < 9999 or s > 3]
    want = [binomial_split(*grid[i]) for i in exact]
    assert got[np.asarray(exact)].tolist() == want


# Programs -----------------------------------------------------------------------------

WIDE = r"stablehlo\.(?:divide|remainder|multiply)\b[^\n]*tensor<i64>"


def known(x: Any) -> Any:
    return jnp.sum(jax.lax.fori_loop(0, 500, lambda i, v: jnp.sin(v) * 1.1, x))


def unknown(x: Any, n: Any) -> Any:
    return jnp.sum(jax.lax.fori_loop(0, n, lambda i, v: jnp.sin(v) * 1.1, x))


@pytest.mark.parametrize("loops", ["host", "device"])
def test_a_sweep_of_known_length_computes_nothing_with_64_bits(loops: Any) -> None:
    plan = retape.fixed_space(snapshots=6, stage=5)
    gradient = jax.jit(retape.jax.grad(known, plan=plan, loops=loops))
    with jax.enable_x64(False):
        text = gradient.lower(jnp.ones(500)).as_text()
    assert "while" in text and not re.findall(WIDE, text)
    gradient = jax.jit(retape.jax.grad(unknown, plan=plan, loops=loops))
    with jax.enable_x64(False):
        text = gradient.lower(jnp.ones(500), 500).as_text()
    assert re.findall(WIDE, text), "this looks for nothing"


@pytest.mark.slow("binomial-count-True", "treeverse-online-True")
@pytest.mark.parametrize(
    ("split", "forward", "device"),
    [
        ("binomial", "online", False),
        ("binomial", "count", True),
        ("treeverse", "online", True),
        ("treeverse", "count", False),
    ],
)
def test_a_run_that_is_longer_than_one_go_goes_on(
    split: Any, forward: Any, device: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A go of six steps in place of 2**30, over runs of up to 61."""
    for module in (_sweep, _device_sweep):
        monkeypatch.setattr(module, "LONGEST_GO", 6)
    sweeps_spent = 9 if split == "treeverse" else None
    settings = Settings(3, 2, split, forward, sweeps_spent, device=device)
    jaxpr = jax.make_jaxpr(unknown)(0.5, 3)
    compiled = compile_program(jaxpr, [True, False], grain=0)

    @jax.jit
    def slope(x: Any, n: Any) -> Any:
        given = [x, n, *compiled.constants]
        _, (found, *_), counts = sweep(compiled, settings, given, [jnp.ones(())])
        return found, counts.steps, counts.advances

    for n in (0, 5, 6, 7, 61):
        found, steps, advances = slope(jnp.asarray(0.5), jnp.asarray(n))
        want, x = 1.0, 0.5
        for _ in range(n):
            x, want = np.sin(x) * 1.1, want * np.cos(x) * 1.1
        np.testing.assert_allclose(found, want, rtol=1e-12)
        assert n <= steps <= n + 2 and advances < 20 * (n + 2)

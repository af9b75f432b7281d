"""Integers of 32 bits: where they are chosen they hold everything, and runs go on."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax

WIDE = r"stablehlo\.(?:divide|remainder|multiply)\b[^\n]*tensor<i64>"


def known(x: Any, n: int = 500) -> Any:
    return jnp.sum(jax.lax.fori_loop(0, n, lambda i, v: jnp.sin(v) * 1.1, x))


def unknown(x: Any, n: Any) -> Any:
    return jnp.sum(jax.lax.fori_loop(0, n, lambda i, v: jnp.sin(v) * 1.1, x))


@pytest.mark.parametrize("loops", ["host", "device"])
def test_a_sweep_of_known_length_computes_nothing_with_64_bits(loops: Any) -> None:
    plan = retape.fixed_space(snapshots=6, stage=5)
    texts = []
    for fun, args in ((known, ()), (unknown, (500,))):
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
    done = retape.jax.measure(lambda x: known(x, 10**6), 0.5, plan=plan)
    predicted = plan.predict(done.report.length)
    assert done.report.length > 10**6
    assert done.report.advances == predicted.advances
    assert done.report.peak_snapshots == predicted.peak_snapshots == snapshots


PLANS = {
    "online": retape.fixed_space(snapshots=3, stage=2),
    "bisection": retape.fixed_space(snapshots=3, stage=2, split="bisection"),
    "treeverse": retape.fixed_space(snapshots=3, stage=2, split="treeverse"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "loops"),
    [
        ("online", "host"),
        ("online", "device"),
        ("bisection", "device"),
        ("treeverse", "host"),
    ],
)
def test_a_run_that_is_longer_than_one_go_goes_on(
    name: str, loops: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A go of six steps in place of 2**30, over runs of up to 61."""
    monkeypatch.setattr("retape.engines.jaxpr.sweep._sweep.LONGEST_GO", 6)
    monkeypatch.setattr("retape.engines.jaxpr.sweep._device_sweep.LONGEST_GO", 6)
    for n in (0, 5, 6, 7, 61):
        done = retape.jax.measure(unknown, 0.5, n, plan=PLANS[name], loops=loops)
        want, x = 1.0, 0.5
        for _ in range(n):
            x, want = np.sin(x) * 1.1, want * np.cos(x) * 1.1
        np.testing.assert_allclose(done.gradient, want, rtol=1e-12)
        assert n <= done.report.length <= n + 2
        assert done.report.advances < 20 * (n + 2)

"""Mapped gradients of runs that end at different steps: one sweep for all of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape
import retape.jax

XS = np.linspace(0.1, 1.0, 8 * 500).reshape(8, 500)
STEPS = np.array([5, 30, 17, 12, 0, 1, 25, 29])
FEW = retape.fixed_space(snapshots=5, stage=2)


def run(x: Any, steps: Any) -> Any:
    def body(c: Any) -> Any:
        return c[0] + 1, jnp.sin(c[1]) * 1.01 + 0.1 * jnp.roll(c[1], 1)

    return jnp.sum(lax.while_loop(lambda c: c[0] < steps, body, (0, x))[1] ** 2)


def taken(fun: Any, *args: Any) -> int:
    report = jax.jit(fun).lower(*args).compile().memory_analysis()
    assert report is not None
    return report.temp_size_in_bytes


def expected(fun: Any = run) -> Any:
    return jnp.stack([jax.jacfwd(fun)(x, n) for x, n in zip(XS, STEPS, strict=True)])


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan", [FEW, None, retape.fixed_space(snapshots=3, split="bisection")]
)
def test_each_run_gets_its_own_gradient(plan: Any) -> None:
    got = jax.vmap(retape.jax.grad(run, plan=plan))(XS, STEPS)
    np.testing.assert_allclose(got, expected(), rtol=1e-12)


def test_a_batch_takes_what_its_runs_take() -> None:
    alone = retape.jax.grad(run, plan=FEW)
    many = taken(jax.vmap(alone), XS, STEPS)
    assert many <= 1.1 * len(XS) * taken(alone, XS[0], STEPS[0])


@pytest.mark.slow
def test_a_budget_is_for_each_run() -> None:
    gradient = jax.vmap(retape.jax.grad(run, plan=retape.within(60_000)))
    assert taken(gradient, XS, STEPS) <= 60_000 * len(XS)
    np.testing.assert_allclose(gradient(XS, STEPS), expected(), rtol=1e-12)


@pytest.mark.slow
def test_batches_of_batches_and_of_second_derivatives() -> None:
    small = lambda x, n: run(x[:3], n)  # noqa: E731
    product = jax.vmap(jax.grad(lambda x, n: retape.jax.grad(small, plan=FEW)(x, n)[0]))
    want = jax.vmap(lambda x, n: jax.jacfwd(jax.jacfwd(small))(x, n)[0])
    np.testing.assert_allclose(product(XS, STEPS), want(XS, STEPS), rtol=1e-9)
    twice = jax.vmap(jax.vmap(retape.jax.grad(run, plan=FEW)))
    xs, steps = XS.reshape(2, 4, -1), STEPS.reshape(2, 4)
    np.testing.assert_allclose(twice(xs, steps).reshape(8, -1), expected(), rtol=1e-12)


@pytest.mark.slow
def test_what_all_runs_share_is_summed_apart() -> None:
    def scaled(w: Any, x: Any, n: Any) -> Any:
        return run(w * x, n)

    got = jax.vmap(retape.jax.grad(scaled, plan=FEW), (None, 0, 0))(0.9, XS, STEPS)
    want = [jax.jacfwd(scaled)(0.9, x, n) for x, n in zip(XS, STEPS, strict=True)]
    np.testing.assert_allclose(got, jnp.stack(want), rtol=1e-12)

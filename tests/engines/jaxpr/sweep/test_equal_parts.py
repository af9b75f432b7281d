"""A device's sweep with a snapshot for each stage: two scans, and JAX's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape
import retape.jax
from tests.engines.jaxpr.support.programs import assert_close
from tests.judges.pairwise import dealt

X: Any = np.linspace(0.1, 1, 5)
N = 11


def carried(x: Any) -> Any:
    return jnp.sum(lax.fori_loop(0, N, lambda i, c: jnp.sin(c) + i * x, x))


def stacked(x: Any) -> Any:
    """Rows are read and written, and read again by what follows."""

    def step(c: Any, row: Any) -> Any:
        c = jnp.sin(c * row) + 0.1 * x
        return c, c * row

    c, rows = lax.scan(step, x, jnp.linspace(0.5, 1.5, N), reverse=True)
    return jnp.sum(rows**2 * jnp.arange(N)[:, None]) + jnp.sum(c)


def weights(w: Any) -> Any:
    """The gradient is by rows, one for each step."""
    w = jnp.outer(jnp.arange(1.0, N + 1), w)
    return jnp.sum(lax.scan(lambda c, r: (jnp.tanh(c * r), None), X, w)[0] ** 2)


def updated(x: Any) -> Any:
    """A row of an array is changed at each step, at a place that is computed."""

    def step(i: Any, a: Any) -> Any:
        return a.at[(3 * i) % 7].add(jnp.sin(a[i % 7] * x[i % 5]))

    return jnp.sum(lax.fori_loop(0, N, step, jnp.ones(7)) ** 2)


def around(x: Any) -> Any:
    """Work before the loop, and outputs of all kinds behind it."""
    y, n = lax.fori_loop(2, N, lambda i, c: (c[0] * jnp.cos(x), c[1] + 3), (x**2, 5))
    return jnp.sum(y * x) + n


def unchanged(x: Any) -> Any:
    """A value that steps hand on, and one that nothing follows from."""
    step = lambda c, _: ((jnp.sin(c[0]), c[1], c[2] + 1), None)  # noqa: E731
    a, b, _ = lax.scan(step, (x, x**2, x), length=N)[0]
    return jnp.sum(a * b)


PROGRAMS = [carried, stacked, weights, updated, around, unchanged]


@pytest.mark.slow("weights-5")
@pytest.mark.parametrize(("fun", "stage"), dealt(PROGRAMS, [1, 4, 5, 99]))
@pytest.mark.usefixtures("opened")
def test_a_gradient_and_a_value(fun: Any, stage: int) -> None:
    plan = retape.fixed_space(snapshots=N, stage=stage)
    gradient = retape.jax.value_and_grad(fun, plan=plan, loops="device")
    (value, found), waits = retape.jax.count_waits(gradient, X)
    assert waits == 0
    expected_value, expected = jax.value_and_grad(fun)(X)
    assert_close(value, expected_value)
    assert_close(found, expected)
    assert retape.jax.explain(fun, X, plan=plan, loops="device").waits == 0


@pytest.mark.usefixtures("opened")
def test_too_few_snapshots_are_placed_by_a_schedule() -> None:
    plan = retape.fixed_space(snapshots=2, stage=2)
    gradient = retape.jax.grad(carried, plan=plan, loops="device")
    found, waits = retape.jax.count_waits(gradient, X)
    assert_close(found, jax.grad(carried)(X))
    assert waits > 0


BATCH = np.stack([X, 2 * X])
FURTHER: dict[str, Callable[[Any], Any]] = {
    "a batch": lambda g: jax.vmap(g)(BATCH),
    "a second derivative": lambda g: jax.grad(lambda x: jnp.sum(g(x) ** 2))(X),
}


@pytest.mark.slow(
    "a second derivative-carried", "a second derivative-stacked", "a batch-stacked"
)
@pytest.mark.parametrize("fun", [carried, stacked])
@pytest.mark.parametrize("what", FURTHER)
@pytest.mark.usefixtures("opened")
def test_a_batch_and_a_second_derivative(what: str, fun: Any) -> None:
    plan = retape.fixed_space(snapshots=N, stage=4)
    gradient = retape.jax.grad(fun, plan=plan, loops="device")
    found, expected = (FURTHER[what](g) for g in (gradient, jax.grad(fun)))
    assert_close(found, expected)

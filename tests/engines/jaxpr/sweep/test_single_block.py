"""Programs of one block: nothing steers, and the results and counts are the same."""

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
from tests.engines.jaxpr.support import seams

X = np.linspace(0.1, 1.0, 16)
W = np.eye(16) * 0.7 + 0.01
PLAN = retape.fixed_space(snapshots=20)


def chain(x: Any) -> Any:
    return jnp.sum(jnp.cos(jnp.exp(-jnp.sin(x))) ** 2)


def perceptron(x: Any) -> Any:
    return jnp.sum(W @ jax.nn.relu(W @ jax.nn.relu(W @ x)))


def short_scan(x: Any) -> Any:
    last, rows = lax.scan(lambda c, _: (jnp.tanh(W @ c), c[0]), x, None, length=10)
    return jnp.sum(last) + jnp.sum(rows**2)


def branches(x: Any) -> Any:
    def turn(i: Any, x: Any) -> Any:
        return lax.cond(i % 2 == 0, jnp.sin, lambda v: 1.1 * v, x)

    return jnp.sum(lax.fori_loop(0, 10, turn, x))


def linear(x: Any) -> Any:
    return jnp.sum(3.0 * x)


def constant_of_others(x: Any) -> Any:
    return jnp.sum(jnp.round(x)) + 2.0


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "chain": chain,
    "perceptron": perceptron,
    "short_scan": short_scan,
    "branches": branches,
    "linear": linear,
    "constant_of_others": constant_of_others,
}


def turns(jaxpr: Any) -> bool:
    """Whether a loop of no fixed length is left, as the controller's is."""
    return "while" in seams.operations(jaxpr)


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_steers_and_the_gradient_is_the_plain_one(name: str) -> None:
    program = PROGRAMS[name]
    gradient = retape.jax.value_and_grad(program, plan=PLAN)
    assert not turns(jax.make_jaxpr(gradient)(X))
    expected = jax.value_and_grad(program)(X)
    for got, plain in zip(gradient(X), expected, strict=True):
        np.testing.assert_allclose(got, plain, rtol=1e-12, atol=1e-14)


@pytest.mark.slow("short_scan")
@pytest.mark.parametrize("name", ["chain", "perceptron", "short_scan"])
def test_it_takes_no_more_memory_than_the_plain_derivative(name: str) -> None:
    """Neither registers nor slots nor a second copy of the cotangents."""
    wide = np.ones((512, 16))

    def total(x: Any) -> Any:
        return jnp.sum(jax.vmap(PROGRAMS[name])(x))

    def temporary(gradient: Any) -> int:
        report: Any = jax.jit(gradient).lower(wide).compile().memory_analysis()
        return report.temp_size_in_bytes

    assert temporary(retape.jax.grad(total)) <= temporary(jax.grad(total)) + 64


def test_what_is_counted_is_one_step_that_is_reversed() -> None:
    report = retape.jax.measure(chain, X, plan=PLAN).report
    assert (report.length, report.taped, report.reverses) == (1, 1, 1)
    assert (report.advances, report.stores, report.restores) == (0, 0, 0)
    predicted = retape.jax.explain(chain, X, plan=PLAN).prediction
    assert predicted is not None
    assert (predicted.advances, predicted.taped, predicted.stores) == (0, 1, 0)


def test_explain_says_that_nothing_is_stored() -> None:
    said = str(retape.jax.explain(perceptron, X, plan=PLAN))
    assert "one step, which is differentiated at once: no snapshot" in said
    assert "at once" not in str(retape.jax.explain(grown, X, plan=PLAN))


def grown(x: Any) -> Any:
    """A loop of unknown length, which is steered."""
    return jnp.sum(lax.while_loop(lambda v: v[0] < 9.0, lambda v: 1.5 * v, x))


def test_expensive_scalars_stay_out_of_the_loops_over_arrays() -> None:
    """They are held in a branch on a truth, which the general sweep has."""

    def turned(x: Any) -> Any:
        return jnp.sum(jnp.cos(x[0]) * jnp.ones(1000) * x[1])

    gradient = retape.jax.grad(turned, plan=PLAN)
    assert turns(jax.make_jaxpr(gradient)(X))
    np.testing.assert_allclose(gradient(X), jax.grad(turned)(X), rtol=1e-12)

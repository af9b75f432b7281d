"""Long sums in four parts: the same sum, and no windows in the compiled program."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.extend import core

import retape
import retape.jax
from retape.engines.jaxpr._sums import PARTS, WINDOW, in_parts, side_by_side


@given(
    st.lists(st.integers(1, 70), min_size=1, max_size=3),
    st.data(),
    st.sampled_from([np.float32, np.float64, np.complex64]),
)
def test_the_sum_over_any_axes(shape: list[int], data: Any, dtype: Any) -> None:
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    # Whole numbers, so that rounding hides nothing.
    x = (np.arange(math.prod(shape)) % 11 - 4).reshape(shape).astype(dtype)
    with jax.enable_x64(True):
        got = side_by_side(jnp.asarray(x), sorted(axes))
    assert got.dtype == dtype
    assert np.array_equal(got, x.sum(tuple(axes)))


def test_rounding_is_that_of_a_quarter_of_the_sum() -> None:
    x = np.random.default_rng(0).uniform(0.5, 1.5, 2048).astype(np.float32)
    exact = math.fsum(x.tolist())
    got = float(side_by_side(jnp.asarray(x), (0,)))
    assert abs(got - exact) <= (x.size / PARTS + 2) * np.finfo(np.float32).eps * exact


def test_what_is_not_a_sum_in_order_gives_not_a_number() -> None:
    x = np.zeros(100, np.float32)
    x[[3, 90]] = np.inf, -np.inf
    assert np.isnan(side_by_side(jnp.asarray(x), (0,)))
    assert side_by_side(jnp.asarray(np.abs(x)), (0,)) == np.inf


def program(x: Any) -> Any:
    """Long sums at the top, in a loop, in a branch and in a call; a short one."""

    def turn(c: Any) -> Any:
        i, x = c
        x = lax.cond(jnp.sum(x) > 9.0, lambda x: x / jnp.sum(x), lambda x: x + 0.5, x)
        return i + 1, x + jax.jit(jnp.sum)(x[: WINDOW + 1]) * jnp.sum(x[:WINDOW]) / 99

    return lax.while_loop(lambda c: c[0] < 5, turn, (jnp.sum(jnp.arange(99)) * 0, x))


def _sums(jaxpr: core.Jaxpr) -> list[tuple[int, Any]]:
    found = []
    for e in jaxpr.eqns:
        if e.primitive.name == "reduce_sum":
            found.append((e.invars[0].aval.size, e.invars[0].aval.dtype))
        for inner in core.jaxprs_in_params(e.params):
            found += _sums(getattr(inner, "jaxpr", inner))
    return found


def test_sums_are_exchanged_however_deep() -> None:
    x = jnp.linspace(0.0, 1.0, 100)
    closed = jax.make_jaxpr(program)(x)
    made = in_parts(closed)
    assert sorted(n for n, _ in _sums(closed.jaxpr)) == [32, 33, 99, 100, 100]
    # Of the long ones only that of whole numbers is left.
    left = _sums(made.jaxpr)
    assert sorted(n for n, _ in left) == [32, 99]
    assert all(np.issubdtype(t, np.integer) for n, t in left if n == 99)
    for a, b in zip(core.jaxpr_as_fun(made)(x), program(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    short = jax.make_jaxpr(lambda x: jnp.sum(x[:WINDOW]))(x)
    assert in_parts(short) is short


@pytest.mark.parametrize("n", [33, 1000, 2048])
def test_a_sweep_has_no_windows(n: int) -> None:
    """XLA's own rewriting would have made one of each sum over more than 32."""

    def fun(x: Any) -> Any:
        going = lambda c: c[0] < 20  # noqa: E731
        turn = lambda c: (c[0] + 1, c[1] * jnp.cos(0.1 * jnp.sqrt(jnp.sum(c[1] ** 2))))  # noqa: E731
        return jnp.sum(lax.while_loop(going, turn, (0, x))[1])

    x = jnp.linspace(0.1, 1.0, n)
    gradient = retape.jax.grad(fun, plan=retape.fixed_space(snapshots=3))
    one = jax.jit(gradient).lower(x).compile()
    assert "reduce-window(" not in one.as_text()
    assert "reduce-window(" in jax.jit(fun).lower(x).compile().as_text()
    np.testing.assert_allclose(one(x), jax.jacfwd(fun)(x), rtol=2e-5, atol=1e-7)

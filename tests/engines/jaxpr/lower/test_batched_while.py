"""Gradients of mapped loops whose lanes end by themselves, one step from infinity."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax
from tests.engines.jaxpr.support import seams
from tests.engines.jaxpr.support.programs import assert_close

PLAN = retape.fixed_space(snapshots=2, stage=2)
# The second ends where the derivative of a step is infinite, the third never goes on,
# and none of its steps would be a number.
X = np.asarray([0.5, 3.99, 4.2, 2.0])


def climb(x: Any, w: Any) -> Any:
    """Up to a limit, beyond which there is no square root."""

    def step(v: Any) -> Any:
        return v + 0.9 * w * jnp.sqrt(4 * w - v) + 0.05 * x

    return jnp.sin(jax.lax.while_loop(lambda v: v < 4 * w, step, x))


def all_of(xs: Any, w: Any) -> Any:
    return jnp.sum(jax.vmap(climb, (0, None))(xs, w))


def wanted(w: float) -> tuple[Any, Any]:
    """One lane at a time, by forward mode."""
    by_x, by_w = zip(*(jax.jacfwd(climb, (0, 1))(x, w) for x in X), strict=True)
    return jnp.stack(by_x), sum(by_w)


@pytest.mark.slow
@pytest.mark.parametrize("argnums", [(0,), (0, 1)])
def test_lanes_that_stand_have_no_part_in_a_gradient(argnums: tuple[int, ...]) -> None:
    gradient = jax.jit(retape.jax.grad(all_of, argnums=argnums, plan=PLAN))
    assert_close(gradient(X, 1.0), wanted(1.0)[: len(argnums)])


@pytest.mark.slow
def test_both_orders_of_map_and_gradient_agree() -> None:
    alone = retape.jax.grad(climb, plan=PLAN)
    found = jax.jit(jax.vmap(alone, (0, None)))(X, 1.0)
    assert_close(found, wanted(1.0)[0])


@pytest.mark.slow
def test_lanes_of_lanes() -> None:
    def fun(xs: Any, w: Any) -> Any:
        inner = jax.vmap(climb, (0, None))
        return jnp.sum(jax.vmap(inner, (0, None))(xs, w))

    gradient = jax.jit(retape.jax.grad(fun, argnums=(0, 1), plan=PLAN))
    by_x, by_w = wanted(1.0)
    assert_close(gradient(X.reshape(2, 2), 1.0), (by_x.reshape(2, 2), by_w))


@pytest.mark.slow
def test_a_gate_of_a_branch_is_not_one_of_the_loop() -> None:
    """JAX puts the same before the branches of a mapped `cond`."""

    def climb(x: Any, w: Any) -> Any:
        def far(v: Any) -> Any:
            return v + 0.9 * w * jnp.sqrt(4 * w - v)

        def near(v: Any) -> Any:
            return v + 0.1 * w + 0.3 * jnp.sqrt(4 * w - v)

        def step(state: Any) -> Any:
            i, v = state
            return i + 1, jax.lax.cond(i % 2 == 0, far, near, v)

        return jax.lax.while_loop(lambda s: s[1] < 4 * w, step, (0, x))[1]

    def all_of(xs: Any, w: Any) -> Any:
        return jnp.sum(jax.vmap(climb, (0, None))(xs, w))

    found = jax.jit(retape.jax.grad(all_of, argnums=(0, 1), plan=PLAN))(X, 1.0)
    by_x, by_w = zip(*(jax.jacfwd(climb, (0, 1))(x, 1.0) for x in X), strict=True)
    assert_close(found, (jnp.stack(by_x), sum(by_w)))


@pytest.mark.slow
def test_lanes_inside_mapped_gradients() -> None:
    """A gate for all of a run's lanes is none for one of them."""
    gradient = retape.jax.grad(all_of, argnums=(0, 1), plan=PLAN)
    found = jax.jit(jax.vmap(gradient, (0, None)))(X.reshape(2, 2), 1.0)
    by_x, _ = wanted(1.0)
    by_w = jnp.stack([jax.jacfwd(climb, 1)(x, 1.0) for x in X]).reshape(2, 2).sum(1)
    assert_close(found, (by_x.reshape(2, 2), by_w))


def test_without_it_there_is_no_number() -> None:
    """The programs above are such that a derivative beyond the end is seen."""

    def choosing(xs: Any, w: Any) -> Any:
        """As a batched loop is written by hand, and as JAX itself runs one."""

        def turn(v: Any, _: Any) -> Any:
            after = v + 0.9 * w * jnp.sqrt(4 * w - v) + 0.05 * xs
            return jnp.where(v < 4 * w, after, v), None

        return jnp.sum(jnp.sin(jax.lax.scan(turn, xs, None, length=9)[0]))

    np.testing.assert_allclose(choosing(X, 1.0), all_of(X, 1.0))
    assert np.isnan(jax.grad(choosing, 1)(X, 1.0))


def test_only_what_lanes_share_takes_more_registers() -> None:
    """Once more as many, for what a lane's last step started from."""

    def registers(fun: Any, *args: Any) -> int:
        layout = seams.compiled(fun, *args).layout
        shapes = [layout.avals[p].shape for p in layout.places("register")]
        return shapes.count(X.shape)

    def lonely(xs: Any) -> Any:
        doubled = lambda v: v + 0.5 * jnp.sqrt(4 - v)  # noqa: E731
        loop = lambda x: jax.lax.while_loop(lambda v: v < 3, doubled, x)  # noqa: E731
        return jnp.sum(jax.vmap(loop)(xs))

    assert registers(lonely, X) == 2
    assert registers(all_of, X, 1.0) == 3

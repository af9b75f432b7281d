"""Collectives over a named axis of `vmap`, against plain JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape
import retape.jax
from retape.jax import Checkpointed, checkpoint, checkpointed, policies

pytestmark = pytest.mark.release

Function = Callable[..., Any]
X = jnp.linspace(0.1, 1.0, 5)
PLAN = retape.fixed_space(snapshots=2, stage=1)

MARKS: dict[str, Callable[[Function], Function]] = {
    "checkpoint": checkpoint,
    "sqrt": lambda f: checkpoint(f, policy=policies.sqrt()),
    "within": lambda f: checkpoint(f, policy=policies.within("1 MB")),
    "checkpointed": lambda f: checkpointed(f, plan=PLAN),
}


def centred(x: Any) -> Any:
    """A step in which the lanes speak to one another."""

    def step(_: Any, v: Any) -> Any:
        return jnp.sin(v) - 0.3 * lax.pmean(v * v, "lanes")

    return lax.fori_loop(0, 4, step, x)


def over(f: Function) -> Function:
    return jax.vmap(f, axis_name="lanes")


# That `sqrt` gains nothing where a loop is most of the work is advice.
@pytest.mark.filterwarnings("ignore:.*most of the work is in a `scan`")
@pytest.mark.parametrize("name", MARKS)
def test_the_gradient_of_a_batch_with_a_mean_over_it(name: str) -> None:
    ours = jax.jit(jax.grad(lambda x: over(MARKS[name](centred))(x).sum()))
    plain = jax.grad(lambda x: over(centred)(x).sum())
    np.testing.assert_allclose(ours(X), plain(X), rtol=1e-12)


# That `sqrt` gains nothing where a loop is most of the work is advice.
@pytest.mark.filterwarnings("ignore:.*most of the work is in a `scan`")
@pytest.mark.parametrize("name", MARKS)
def test_a_batch_of_gradients_that_speak_to_one_another(name: str) -> None:
    got = over(jax.grad(MARKS[name](centred)))(X)
    np.testing.assert_allclose(got, over(jax.grad(centred))(X), rtol=1e-12)


def test_ours_inside_and_outside_of_the_batch() -> None:
    plain = jax.grad(lambda x: over(centred)(x).sum())(X)
    outside = retape.jax.grad(lambda x: over(centred)(x).sum(), plan=PLAN)(X)
    np.testing.assert_allclose(outside, plain, rtol=1e-12)
    inside = over(retape.jax.grad(centred, plan=PLAN))(X)
    np.testing.assert_allclose(inside, over(jax.grad(centred))(X), rtol=1e-12)


def test_what_is_the_same_for_all_lanes_has_no_axis() -> None:
    marked = checkpointed(lambda x: (x * 2, lax.pmean(x, "lanes")))
    run = jax.vmap(marked, axis_name="lanes", out_axes=(0, None))
    twice, mean = run(X)
    assert mean.shape == ()
    np.testing.assert_allclose(twice, 2 * X)
    np.testing.assert_allclose(mean, jnp.mean(X))


class Normed(eqx.Module):
    linear: eqx.nn.Linear
    norm: eqx.nn.BatchNorm

    def __init__(self) -> None:
        self.linear = eqx.nn.Linear(3, 3, key=jax.random.key(0))
        self.norm = eqx.nn.BatchNorm(3, "batch", mode="batch")

    def __call__(self, x: Any, state: Any) -> Any:
        x, state = self.norm(self.linear(x), state)
        return jnp.tanh(x), state


@pytest.mark.slow
@pytest.mark.parametrize("mark", [Checkpointed, checkpointed])
def test_equinox_s_batch_norm(mark: Any) -> None:
    model, state = eqx.nn.make_with_state(Normed)()
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)))

    def loss(model: Any, state: Any, mark: Any) -> Any:
        run = jax.vmap(
            mark(model), axis_name="batch", in_axes=(0, None), out_axes=(0, None)
        )
        y, state = run(x, state)
        return (y**2).sum(), state

    slope = eqx.filter_jit(eqx.filter_grad(loss, has_aux=True))
    want, got = slope(model, state, lambda m: m), slope(model, state, mark)
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)

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


def centred(x: Any) -> Any:
    """A step in which the lanes speak to one another."""

    def step(_: Any, v: Any) -> Any:
        return jnp.sin(v) - 0.3 * lax.pmean(v * v, "lanes")

    return lax.fori_loop(0, 4, step, x)


def over(f: Function) -> Function:
    return jax.vmap(f, axis_name="lanes")


def summed(f: Function) -> Function:
    return lambda x: over(f)(x).sum()


def by_mark(mark: Function) -> tuple[Function, Function]:
    """A gradient of a batch, and a batch of gradients."""
    marked = mark(centred)
    return jax.jit(jax.grad(summed(marked))), over(jax.grad(marked))


WAYS: dict[str, tuple[Function, Function]] = {
    "checkpoint": by_mark(checkpoint),
    "sqrt": by_mark(lambda f: checkpoint(f, policy=policies.sqrt())),
    "within": by_mark(lambda f: checkpoint(f, policy=policies.within("1 MB"))),
    "checkpointed": by_mark(lambda f: checkpointed(f, plan=PLAN)),
    "grad": (
        retape.jax.grad(summed(centred), plan=PLAN),
        over(retape.jax.grad(centred, plan=PLAN)),
    ),
}


# That `sqrt` gains nothing where a loop is most of the work is advice.
@pytest.mark.slow("sqrt")
@pytest.mark.filterwarnings("ignore:.*most of the work is in a `scan`")
@pytest.mark.parametrize("name", WAYS)
def test_lanes_speak_to_one_another(name: str) -> None:
    of_a_batch, in_a_batch = WAYS[name]
    # Of single precision: XLA adds up in another order where a batch is one program.
    np.testing.assert_allclose(of_a_batch(X), jax.grad(summed(centred))(X), rtol=1e-6)
    np.testing.assert_allclose(in_a_batch(X), over(jax.grad(centred))(X), rtol=1e-6)


def test_what_is_the_same_for_all_lanes_has_no_axis() -> None:
    marked = checkpointed(lambda x: (x * 2, lax.pmean(x, "lanes")))
    twice, mean = jax.vmap(marked, axis_name="lanes", out_axes=(0, None))(X)
    assert mean.shape == ()
    np.testing.assert_allclose(twice, 2 * X)
    np.testing.assert_allclose(mean, jnp.mean(X))


class Normed(eqx.Module):
    linear: eqx.nn.Linear
    norm: eqx.nn.BatchNorm

    def __init__(self) -> None:
        self.linear = eqx.nn.Linear(3, 3, key=jax.random.key(0))
        self.norm = eqx.nn.BatchNorm(3, "lanes", mode="batch")

    def __call__(self, x: Any, state: Any) -> Any:
        x, state = self.norm(self.linear(x), state)
        return jnp.tanh(x), state


@pytest.mark.slow
@pytest.mark.parametrize("mark", [Checkpointed, checkpointed])
def test_equinox_s_batch_norm(mark: Any) -> None:
    model, state = eqx.nn.make_with_state(Normed)()
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)))

    def loss(model: Any, state: Any, mark: Any) -> Any:
        run = jax.vmap(mark(model), (0, None), (0, None), axis_name="lanes")
        y, state = run(x, state)
        return (y**2).sum(), state

    slope = eqx.filter_jit(eqx.filter_grad(loss, has_aux=True))
    want, got = slope(model, state, lambda m: m), slope(model, state, mark)
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)

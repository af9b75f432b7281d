"""`Checkpointed` around callables and around modules of three libraries."""

from __future__ import annotations

import copy
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import retape
import retape.jax
from retape.jax import Checkpointed


def assert_close(a: Any, b: Any) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), a, b)


def test_a_function_keeps_its_name_and_gradient() -> None:
    layer = Checkpointed(jnp.tanh)
    assert layer.__name__ == "tanh"
    assert jax.tree.leaves(layer) == []
    assert_close(jax.grad(layer)(0.3), jax.grad(jnp.tanh)(0.3))


@pytest.mark.slow
def test_an_equinox_module_stays_a_pytree_with_its_parameters() -> None:
    plain = eqx.nn.MLP(3, 2, 4, 2, key=jax.random.key(0))
    layer = Checkpointed(plain)
    assert layer.depth == 2
    x = jnp.ones(3)

    def loss(model: Any) -> Any:
        return (model(x) ** 2).sum()

    slope = eqx.filter_grad(loss)
    assert_close(
        jax.tree.leaves(eqx.filter(slope(layer), eqx.is_array)),
        jax.tree.leaves(eqx.filter(slope(plain), eqx.is_array)),
    )
    assert isinstance(jax.tree.map(lambda v: v, layer), Checkpointed)
    assert copy.copy(layer).depth == 2


class Noisy(nnx.Module):
    """Statistics, a counter, and random numbers."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(4, 4, rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.calls = nnx.BatchStat(jnp.array(0))

    def __call__(self, x: Any) -> Any:
        self.calls[...] += 1
        return x + self.drop(self.norm(jnp.tanh(self.linear(x))))


@pytest.mark.slow
def test_an_nnx_module_changes_its_state_once_and_draws_the_same_masks() -> None:
    plain, marked = Noisy(nnx.Rngs(0)), Noisy(nnx.Rngs(0))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(8, 4)), jnp.float32)

    def loss(model: Any, marks: bool) -> Any:
        layer = Checkpointed(model) if marks else model
        return (layer(layer(x)) ** 2).sum()

    slope = nnx.grad(loss, argnums=nnx.DiffState(0, nnx.Param))
    slope = nnx.jit(slope, static_argnums=1)
    got = slope(marked, True)
    assert_close(nnx.to_pure_dict(got), nnx.to_pure_dict(slope(plain, False)))
    assert marked.calls[...] == 2
    assert_close(nnx.state(marked, nnx.BatchStat), nnx.state(plain, nnx.BatchStat))
    streams = [nnx.state(m, nnx.RngCount) for m in (marked, plain)]
    assert_close(*streams)


class Block(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return x + jnp.tanh(nn.Dense(4)(x))


class Stack(nn.Module):
    marked: bool

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(3):
            block = Block()
            x = (Checkpointed(block) if self.marked else block)(x)
        return x


@pytest.mark.slow
def test_a_linen_module_keeps_its_parameters_names() -> None:
    x = jnp.ones((2, 4))
    key = jax.random.key(0)
    variables = Stack(False).init(key, x)
    marked = Checkpointed(Stack(True))
    assert_close(marked.init(key, x), variables)

    def loss(model: Any, variables: Any) -> Any:
        return (model.apply(variables, x) ** 2).sum()

    assert_close(
        jax.grad(lambda v: loss(marked, v))(variables),
        jax.grad(lambda v: loss(Stack(False), v))(variables),
    )


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(retape.UnsupportedError, match="Pass a function or a layer"):
        Checkpointed(3)  # pyright: ignore[reportArgumentType]


class Growing(nnx.Module):
    def __call__(self, x: Any) -> Any:
        self.seen = nnx.BatchStat(x)
        return x


def test_state_that_appears_in_the_call_is_there_after_it() -> None:
    layer = Growing()
    assert_close(retape.jax.Checkpointed(layer)(jnp.ones(2)), jnp.ones(2))
    assert_close(layer.seen[...], jnp.ones(2))

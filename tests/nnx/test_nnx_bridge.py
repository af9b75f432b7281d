"""Linen layers: bridged into a stack of NNX, and as the peer `linen.remat_scan`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import linen, nnx
from flax.errors import ModifyScopeVariableError

import retape
import retape.nnx
from tests.nnx.stacks import WIDTH, batch, difference


class Block(linen.Module):
    """A Linen layer with weights, statistics, dropout and something sown."""

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = linen.Dense(WIDTH, param_dtype=jnp.float64)(x)
        y = linen.BatchNorm(use_running_average=False, param_dtype=jnp.float64)(y)
        y = linen.Dropout(0.3, deterministic=False)(y)
        self.sow("intermediates", "most", jnp.max(y))
        return x + jnp.tanh(y)


def bridged(layers: int) -> Any:
    """A stack of bridged layers, each initialised where it is made."""

    @nnx.jit
    @nnx.split_rngs(splits=layers)
    @nnx.vmap(in_axes=(0,), out_axes=0)
    def create(rngs: nnx.Rngs) -> Any:
        return nnx.bridge.ToNNX(Block(), rngs=rngs).lazy_init(jnp.ones((4, WIDTH)))

    return create(nnx.Rngs(5))


def swept(scan: Any, mutable: Any, **options: Any) -> Any:
    def loss(layers: Any, x: jax.Array) -> jax.Array:
        f = scan(
            lambda x, layer: layer(x, mutable=mutable),
            in_axes=(nnx.Carry, 0),
            out_axes=nnx.Carry,
            **options,
        )
        return jnp.sum(f(x, layers) ** 2)

    layers = bridged(5)
    gradient = nnx.jit(nnx.grad(loss))(layers, batch())
    return gradient, nnx.split(layers)[1]


@pytest.mark.slow
def test_a_bridged_linen_layer_with_statistics_and_dropout_works() -> None:
    mutable = ["batch_stats", "intermediates"]
    expected = swept(nnx.scan, mutable)
    ours = swept(retape.nnx.remat_scan, mutable, segment_length=2)
    assert difference(ours, expected) < 1e-12
    kinds = {type(v).__name__ for _, v in nnx.to_flat_state(ours[1])}
    assert {"Param", "BatchStat", "Intermediate", "RngCount"} <= kinds


def test_a_collection_that_the_bridge_does_not_carry_is_named() -> None:
    """Not named in `mutable`, a collection cannot be written through the bridge."""
    with pytest.raises(ModifyScopeVariableError, match='collection "batch_stats"'):
        swept(retape.nnx.remat_scan, None)


# The peer -----------------------------------------------------------------------


class Plain(linen.Module):
    """What `nnx.Linear` and a tanh are, in Linen."""

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return x + jnp.tanh(linen.Dense(x.shape[-1], param_dtype=x.dtype)(x))


@pytest.mark.slow
def test_gradients_and_memory_are_those_of_linen_s_remat_scan() -> None:
    """Sixteen layers in two levels of four: the same gradients, no more memory."""
    wide, rows = 16, 512
    model = linen.remat_scan(Plain, lengths=(4, 4))()
    x = jnp.linspace(-1, 1, rows * wide, dtype=jnp.float64).reshape(rows, wide)
    weights = jax.jit(model.init)(jax.random.key(0), x)
    (dense,) = weights["params"].values()
    kernel = dense["Dense_0"]["kernel"] if "Dense_0" in dense else dense["kernel"]
    bias = dense["Dense_0"]["bias"] if "Dense_0" in dense else dense["bias"]

    class Ours(nnx.Module):
        def __init__(self) -> None:
            self.kernel = nnx.Param(kernel.reshape(16, wide, wide))
            self.bias = nnx.Param(bias.reshape(16, wide))

        def __call__(self, x: jax.Array) -> jax.Array:
            return x + jnp.tanh(x @ self.kernel + self.bias)

    graph, state = nnx.split(Ours())
    f = retape.nnx.remat_scan(
        lambda x, layer: layer(x),
        in_axes=(nnx.Carry, 0),
        out_axes=nnx.Carry,
        segment_length=4,
    )
    theirs = jax.jit(jax.grad(lambda w, x: jnp.sum(model.apply(w, x) ** 2)))
    ours = jax.jit(jax.grad(lambda s, x: jnp.sum(f(x, nnx.merge(graph, s)) ** 2)))
    theirs, ours = theirs.lower(weights, x).compile(), ours.lower(state, x).compile()
    gradients = nnx.to_pure_dict(ours(state, x))
    for leaf in jax.tree.leaves(theirs(weights, x)):
        name = "kernel" if leaf.ndim == kernel.ndim else "bias"
        assert difference(gradients[name].reshape(leaf.shape), leaf) < 1e-10
    bytes_of = lambda c: c.memory_analysis().temp_size_in_bytes  # noqa: E731
    assert bytes_of(ours) <= bytes_of(theirs)

"""Layers, stacks of them, and a Python loop over a stack as the oracle."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

WIDTH = 6


class Count(nnx.Variable[jax.Array]):
    """How often a layer was run."""


class Layer(nnx.Module):
    """A layer with every kind of state: weights, statistics, a counter, dropout."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(WIDTH, WIDTH, param_dtype=jnp.float64, rngs=rngs)
        self.norm = nnx.BatchNorm(WIDTH, param_dtype=jnp.float64, rngs=rngs)
        # Its statistics are of single precision otherwise, and the update warns.
        self.norm.mean = nnx.BatchStat(jnp.zeros(WIDTH, jnp.float64))
        self.norm.var = nnx.BatchStat(jnp.ones(WIDTH, jnp.float64))
        self.dropout = nnx.Dropout(0.3, rngs=rngs)
        self.count = Count(jnp.zeros((), jnp.int32))

    def __call__(self, x: jax.Array) -> jax.Array:
        self.count[...] += 1
        return x + self.dropout(jnp.tanh(self.norm(self.linear(x))))


class Tanh(nnx.Module):
    """A layer of weights alone, made without a random number."""

    def __init__(self, layers: int) -> None:
        self.weight = nnx.Param(waves(layers, WIDTH, WIDTH))

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.tanh(x @ self.weight)


def waves(*shape: int) -> jax.Array:
    """Numbers that look like nothing in particular."""
    return jnp.asarray(np.sin(1.0 + np.arange(np.prod(shape))).reshape(shape))


@lru_cache(maxsize=1)
def _one_layer() -> Any:
    return nnx.split(Layer(nnx.Rngs(7)))


def stack(layers: int) -> Any:
    """A stack of layers: one module, each of whose arrays has a leading axis."""

    def stacked(leaf: jax.Array) -> jax.Array:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(
                np.arange(2 * layers, dtype=np.uint32).reshape(layers, 2)
            )
        scale = 1 + np.arange(layers).reshape(layers, *[1] * leaf.ndim) / 10
        return jnp.asarray((np.asarray(leaf) * scale).astype(leaf.dtype))

    graph, state = _one_layer()
    return nnx.merge(graph, jax.tree.map(stacked, state))


def loop(layers: Any, x: jax.Array) -> tuple[jax.Array, list[Any]]:
    """The layers one after another in Python: the result, and each layer's state."""
    graph, state = nnx.split(layers)
    after: list[Any] = []
    for i in range(jax.tree.leaves(state)[0].shape[0]):
        layer = nnx.merge(graph, jax.tree.map(lambda a, i=i: a[i], state))
        x = layer(x)
        after.append(nnx.split(layer)[1])
    return x, after


def batch() -> jax.Array:
    return waves(4, WIDTH)


def plain(leaf: Any) -> np.ndarray[Any, Any]:
    """An array that can be compared: the data of a random key."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def difference(a: Any, b: Any) -> float:
    """The largest difference between two trees of arrays of one structure."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    found = 0.0
    for x, y in pairs:
        x, y = plain(x), plain(y)
        assert x.shape == y.shape and x.dtype == y.dtype
        if x.size:
            wide = x.astype(np.float64) - y.astype(np.float64)
            found = max(found, float(np.max(np.abs(wide))))
    return found


def without_address(value: Any) -> str:
    """A test's name that is the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))

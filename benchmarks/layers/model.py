"""A transformer of L layers, whose weights are stacked, and its loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Shape(NamedTuple):
    """Sizes: layers, sequences, tokens in each, width, heads."""

    layers: int = 48
    batch: int = 2
    tokens: int = 128
    width: int = 128
    heads: int = 4


def weights(shape: Shape, seed: int = 0) -> dict[str, jax.Array]:
    """All layers' weights, stacked."""
    n, d = shape.layers, shape.width
    sizes = {"q": (d, d), "k": (d, d), "v": (d, d), "o": (d, d)}
    sizes |= {"up": (d, 4 * d), "down": (4 * d, d)}
    keys = jax.random.split(jax.random.key(seed), len(sizes))
    return {
        name: jax.random.normal(key, (n, a, b)) / a**0.5
        for key, (name, (a, b)) in zip(keys, sizes.items(), strict=True)
    }


def start(shape: Shape) -> jax.Array:
    """What the first layer is given."""
    return jax.random.normal(
        jax.random.key(1), (shape.batch, shape.tokens, shape.width)
    )


def layer(shape: Shape, h: jax.Array, w: dict[str, Any]) -> jax.Array:
    """Attention and a two-layer network, each on a normed input, each added."""
    split = (*h.shape[:2], shape.heads, shape.width // shape.heads)
    x = _norm(h)
    q, k, v = ((x @ w[name]).reshape(split) for name in "qkv")
    scores = jnp.einsum("bshd,bthd->bhst", q, k) / split[-1] ** 0.5
    mixed = jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(scores, -1), v)
    h = h + mixed.reshape(h.shape) @ w["o"]
    return h + jax.nn.gelu(_norm(h) @ w["up"]) @ w["down"]


def _norm(h: jax.Array) -> jax.Array:
    return h * jax.lax.rsqrt((h * h).mean(-1, keepdims=True) + 1e-6)


def scan_of(shape: Shape, remat: bool = False) -> Callable[..., Any]:
    """JAX's loop over the layers, each under `jax.checkpoint` or not."""
    body = lambda h, w: (layer(shape, h, w), None)  # noqa: E731
    body = jax.checkpoint(body, prevent_cse=False) if remat else body
    return lambda h, w: jax.lax.scan(body, h, w)[0]


def loss_by(loop: Callable[..., Any]) -> Callable[..., Any]:
    """The loss of a way to go through the layers: `loop(h, weights) -> h`."""

    def loss(weights_: Any, h: jax.Array) -> jax.Array:
        return (loop(h, weights_) ** 2).mean()

    return loss

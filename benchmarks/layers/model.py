"""A transformer of L layers, by a loop over stacked weights, unrolled, and in Linen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
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


class Linen(nn.Module):
    """The layer as a Linen module."""

    shape: Shape

    @nn.compact
    def __call__(self, h: jax.Array) -> jax.Array:
        one = weights(self.shape._replace(layers=1))
        named = {
            name: self.param(name, nn.initializers.lecun_normal(), value.shape[1:])
            for name, value in one.items()
        }
        return layer(self.shape, h, named)


def pair(n: int) -> tuple[int, int]:
    """Two factors, as near to one another as may be, the larger first."""
    a = next(a for a in range(int(n**0.5), 0, -1) if n % a == 0)
    return n // a, a


def linen_remat_scan(shape: Shape, h: Any, w: Any) -> Any:
    """Flax Linen's loop, with the same weights."""
    inner, outer = sorted(pair(shape.layers))
    stack = nn.remat_scan(Linen, lengths=(inner, outer))(shape)
    folded = jax.tree.map(lambda v: v.reshape(inner, outer, *v.shape[1:]), w)
    return stack.apply({"params": folded}, h)


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

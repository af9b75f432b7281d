"""A decoder in the shape of Qwen3 and Llama: what the layers of today are made of.

RMSNorm before each part, rotary positions, grouped-query attention with normalised
queries and keys, SwiGLU, no bias anywhere. The layers are one module whose weights have
a leading axis, and a scan runs them: `flax.nnx.scan`, or `retape.nnx.remat_scan` with
the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a decoder.

    Attributes:
        vocabulary: Number of tokens.
        layers: Number of layers.
        width: Size of the residual stream.
        heads: Heads of the queries.
        groups: Heads of the keys and values; each serves heads / groups queries.
        head: Size of a head.
        hidden: Width of the gated part.
        block: Queries that attend at once; None for all. The scores of a block are
            what attention needs memory for.
        dtype: Type of weights and activations.
    """

    vocabulary: int = 256
    layers: int = 12
    width: int = 48
    heads: int = 4
    groups: int = 2
    head: int = 16
    hidden: int = 128
    block: int | None = None
    dtype: Any = jnp.float32


def rotate(x: jax.Array, base: float = 10_000.0) -> jax.Array:
    """Rotary positions: pairs of (tokens, heads, head) turned by their position."""
    tokens, _, size = x.shape
    rates = base ** (-jnp.arange(0, size, 2, dtype=jnp.float32) / size)
    angles = jnp.arange(tokens, dtype=jnp.float32)[:, None] * rates
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


def attend(q: jax.Array, k: jax.Array, v: jax.Array, block: int | None) -> jax.Array:
    """Causal attention of (tokens, groups, heads of a group, head), block by block."""
    tokens, size = q.shape[0], block or q.shape[0]
    where = jnp.arange(tokens)

    # Its scores are made again in reverse: one block's are in memory at a time.
    @jax.checkpoint
    def one(part: tuple[jax.Array, jax.Array]) -> jax.Array:
        queries, at = part
        scores = jnp.einsum(
            "qghd,kgd->ghqk", queries, k, preferred_element_type=jnp.float32
        )
        scores = jnp.where(at[:, None] >= where, scores * q.shape[-1] ** -0.5, -1e30)
        weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
        return jnp.einsum("ghqk,kgd->qghd", weights, v)

    blocks = q.reshape(-1, size, *q.shape[1:]), where.reshape(-1, size)
    return jax.lax.map(one, blocks).reshape(q.shape)


def linear_of(shape: Shape, rngs: nnx.Rngs) -> Callable[[int, int], nnx.Linear]:
    """What makes the matrices of a layer, by their sizes."""
    types = {"dtype": shape.dtype, "param_dtype": shape.dtype}
    return partial(nnx.Linear, use_bias=False, rngs=rngs, **types)


def norm_of(shape: Shape, size: int, rngs: nnx.Rngs) -> nnx.RMSNorm:
    """A norm of vectors of a size."""
    types = {"dtype": shape.dtype, "param_dtype": shape.dtype}
    return nnx.RMSNorm(size, rngs=rngs, **types)


class Attention(nnx.Module):
    """Grouped-query attention with normalised queries and keys."""

    def __init__(self, shape: Shape, rngs: nnx.Rngs) -> None:
        linear = linear_of(shape, rngs)
        norm = partial(norm_of, shape, shape.head, rngs)
        self.shape = shape
        self.query = linear(shape.width, shape.heads * shape.head)
        self.key = linear(shape.width, shape.groups * shape.head)
        self.value = linear(shape.width, shape.groups * shape.head)
        self.out = linear(shape.heads * shape.head, shape.width)
        self.query_norm, self.key_norm = norm(), norm()

    def __call__(self, x: jax.Array) -> jax.Array:
        s = self.shape
        q = self.query(x).reshape(*x.shape[:-1], s.heads, s.head)
        k = self.key(x).reshape(*x.shape[:-1], s.groups, s.head)
        v = self.value(x).reshape(*x.shape[:-1], s.groups, s.head)
        turn = jax.vmap(rotate)
        q, k = turn(self.query_norm(q)), turn(self.key_norm(k))
        q = q.reshape(*x.shape[:-1], s.groups, s.heads // s.groups, s.head)
        y = jax.vmap(partial(attend, block=s.block))(q, k, v)
        return self.out(y.reshape(*x.shape[:-1], s.heads * s.head))


class Gated(nnx.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, shape: Shape, rngs: nnx.Rngs) -> None:
        linear = linear_of(shape, rngs)
        self.gate = linear(shape.width, shape.hidden)
        self.up = linear(shape.width, shape.hidden)
        self.down = linear(shape.hidden, shape.width)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.down(jax.nn.silu(self.gate(x)) * self.up(x))


class Layer(nnx.Module):
    """One layer: (batch, tokens, width) to the same."""

    def __init__(self, shape: Shape, rngs: nnx.Rngs) -> None:
        norm = partial(norm_of, shape, shape.width, rngs)
        self.before_attention, self.before_gated = norm(), norm()
        self.attention = Attention(shape, rngs)
        self.gated = Gated(shape, rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.before_attention(x))
        return x + self.gated(self.before_gated(x))


def stack(shape: Shape, rngs: nnx.Rngs) -> Layer:
    """All layers as one module, whose weights have a leading axis."""

    @nnx.split_rngs(splits=shape.layers)
    @nnx.vmap(in_axes=(0,), out_axes=0)
    def create(rngs: nnx.Rngs) -> Layer:
        return Layer(shape, rngs)

    return create(rngs)


def run(scan: Callable[..., Any], layers: Layer, x: jax.Array) -> jax.Array:
    """The layers one after another: the line in which one scan replaces the other."""
    forward = scan(
        lambda x, layer: layer(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry
    )
    return forward(x, layers)


class Decoder(nnx.Module):
    """Tokens (batch, tokens) to the logits of the next ones."""

    def __init__(self, shape: Shape, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(
            shape.vocabulary,
            shape.width,
            dtype=shape.dtype,
            param_dtype=shape.dtype,
            rngs=rngs,
        )
        self.layers = stack(shape, rngs)
        self.norm = norm_of(shape, shape.width, rngs)

    def __call__(self, tokens: jax.Array, scan: Callable[..., Any]) -> jax.Array:
        x = run(scan, self.layers, self.embed(tokens))
        return self.embed.attend(self.norm(x))

"""The example: a decoder, trained twice; and the case of a stack that did not fit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import retape.nnx
from tests.nnx.stacks import difference, waves

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "decoder"))

import decoder  # noqa: E402
import train  # noqa: E402

SMALL = decoder.Shape(
    layers=5, width=8, heads=4, groups=2, head=4, hidden=16, dtype=jnp.float64
)


@pytest.mark.slow
def test_the_loss_curves_with_and_without_are_equal() -> None:
    plain, _ = train.train(nnx.scan, SMALL, steps=6, size=2, tokens=8)
    ours, _ = train.train(retape.nnx.remat_scan, SMALL, steps=6, size=2, tokens=8)
    assert ours == pytest.approx(plain, rel=1e-12, abs=0)
    assert plain[-1] < plain[0]


@pytest.mark.slow
def test_the_decoder_sees_no_token_before_its_time() -> None:
    """Another last token changes no logit but the last; and blocks change nothing."""
    model = nnx.jit(lambda: decoder.Decoder(SMALL, nnx.Rngs(0)))()
    tokens = jnp.arange(8)[None] * 7 % 50
    run = nnx.jit(lambda model, tokens: model(tokens, retape.nnx.remat_scan))
    logits, other = run(model, tokens), run(model, tokens.at[0, -1].set(3))
    assert difference(logits[:, :-1], other[:, :-1]) == 0
    assert difference(logits[:, -1], other[:, -1]) > 1e-3
    q, k = waves(8, 2, 2, 4), waves(8, 2, 4)
    whole, blocks = (decoder.attend(q, k, k, block) for block in (None, 2))
    assert difference(whole, blocks) < 1e-7  # scores are in single precision


# 48 layers: what the gradient keeps of the carries -------------------------------


STACK = decoder.Shape(
    layers=48, width=32, heads=2, groups=1, head=16, hidden=32, block=16
)


def gradient_bytes(
    scan: Callable[..., Any], tokens: int, body: Callable[..., Any] | None = None
) -> int:
    """Temporaries of the gradient of 48 layers, compiled without an array."""
    graph, state = nnx.split(nnx.eval_shape(lambda: decoder.stack(STACK, nnx.Rngs(0))))
    x = jax.ShapeDtypeStruct((1, tokens, STACK.width), jnp.float32)

    def gradient(state: Any, x: jax.Array) -> Any:
        def loss(state: Any) -> jax.Array:
            layers = nnx.merge(graph, state)
            f = scan(
                body or (lambda x, layer: layer(x)),
                in_axes=(nnx.Carry, 0),
                out_axes=nnx.Carry,
            )
            return jnp.sum(f(x, layers) ** 2)

        return jax.grad(loss)(state)

    compiled = jax.jit(gradient).lower(state, x).compile()
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.slow
def test_48_layers_keep_a_square_root_of_their_carries() -> None:
    """`nnx.remat` of the layer leaves 48 carries; two levels leave 8 + 6.

    Beside them, the weights' gradients of a segment are in memory.
    """
    tokens = 4096
    carry = tokens * 32 * 4
    layer = nnx.eval_shape(lambda: decoder.stack(STACK, nnx.Rngs(0)))
    weights = sum(4 * a.size for a in jax.tree.leaves(nnx.split(layer)[1])) // 48
    marked = nnx.remat(lambda x, layer: layer(x))
    before = gradient_bytes(nnx.scan, tokens, marked)
    after = gradient_bytes(partial(retape.nnx.remat_scan, segment_length=6), tokens)
    assert before > 48 * carry
    predicted = (48 - 8 - 6) * carry - 6 * weights
    assert before - after > predicted - carry // 4


@pytest.mark.slow
def test_8192_tokens_run_for_real_at_reduced_width() -> None:
    """The gated half of 48 layers, whose work grows with the tokens and no faster."""

    class Half(decoder.Gated):
        def __call__(self, x: jax.Array) -> jax.Array:
            return jnp.tanh(x + super().__call__(x))

    @nnx.jit
    @nnx.vmap
    def create(rngs: nnx.Rngs) -> Half:
        return Half(decoder.Shape(width=8, hidden=16, dtype=jnp.float64), rngs)

    def gradient(scan: Callable[..., Any]) -> Any:
        loss = lambda layers, x: jnp.mean(decoder.run(scan, layers, x) ** 2)  # noqa: E731
        return nnx.jit(nnx.grad(loss))(layers, waves(1, 8192, 8))

    layers = create(nnx.Rngs(0).split(48))
    ours, plain = gradient(retape.nnx.remat_scan), gradient(nnx.scan)
    assert max(float(jnp.abs(a).max()) for a in jax.tree.leaves(plain)) > 1e-3
    assert difference(ours, plain) < 1e-12

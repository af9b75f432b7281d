"""The example: a decoder, trained twice; and the case of a stack that did not fit."""

from __future__ import annotations

import sys
from collections.abc import Callable
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

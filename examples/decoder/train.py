"""Train a small decoder twice, with `nnx.scan` and with `remat_scan`: the same losses.

The text is `passage.txt`, byte by byte. Printed are both curves, and the memory that
the compiler says a training step needs beside its arguments.

    python examples/decoder/train.py [--steps 40]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from decoder import Decoder, Shape
from flax import nnx

import retape.nnx

PASSAGE = Path(__file__).with_name("passage.txt")


def batches(steps: int, size: int, tokens: int) -> np.ndarray[Any, Any]:
    """Random stretches of the passage: (steps, size, tokens + 1)."""
    text = np.frombuffer(PASSAGE.read_bytes(), np.uint8)
    starts = np.random.default_rng(1).integers(len(text) - tokens, size=(steps, size))
    return text[starts[..., None] + np.arange(tokens + 1)].astype(np.int32)


def step_of(scan: Callable[..., Any]) -> Any:
    """A training step: it changes the model and the optimiser, and gives the loss."""

    def loss(model: Decoder, text: jax.Array) -> jax.Array:
        logits = model(text[:, :-1], scan)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, text[:, 1:])
        return jnp.mean(losses)

    @nnx.jit
    def step(model: Decoder, optimiser: Any, text: jax.Array) -> jax.Array:
        value, gradient = nnx.value_and_grad(loss)(model, text)
        optimiser.update(model, gradient)
        return value

    return step


def train(
    scan: Callable[..., Any], shape: Shape, steps: int, size: int = 4, tokens: int = 64
) -> tuple[list[float], int]:
    """The loss of each step, and the bytes that a step needs beside its arguments."""
    model = nnx.jit(lambda: Decoder(shape, nnx.Rngs(0)))()
    optimiser = nnx.Optimizer(model, optax.adamw(3e-3), wrt=nnx.Param)
    texts = jnp.asarray(batches(steps, size, tokens))
    step = step_of(scan).lower(model, optimiser, texts[0]).compile()
    losses = [float(step(model, optimiser, text)) for text in texts]
    return losses, step.memory_analysis().temp_size_in_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    shape, steps = Shape(), parser.parse_args().steps
    plain, plain_bytes = train(nnx.scan, shape, steps)
    ours, our_bytes = train(partial(retape.nnx.remat_scan, levels=2), shape, steps)
    print("step   nnx.scan   remat_scan")
    for i in range(0, steps, 5):
        print(f"{i:4}   {plain[i]:8.5f}   {ours[i]:10.5f}")
    apart = max(abs(a - b) / a for a, b in zip(plain, ours, strict=True))
    print(f"largest difference: {apart:.1e}")
    print(f"memory of a step: {plain_bytes / 1e6:.1f} and {our_bytes / 1e6:.1f} MB")
    assert apart < 1e-4, "the curves differ by more than rounding"
    assert steps < 40 or ours[-1] < 0.75 * ours[0], "nothing was learnt"
    assert our_bytes < plain_bytes / 3


if __name__ == "__main__":
    main()

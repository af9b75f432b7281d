"""Does it fit an H100, before one is rented: 48 layers of 65,536 tokens, width 2,048.

`retape fits examples/forty_eight_layers.py:problem --device h100` compiles the gradient
of the loss for the device, plainly and by each way that Retape has, and runs nothing.
The layers are scanned, so the plain gradient keeps an array for each of them.
"""

from typing import Any

import jax
import jax.numpy as jnp

LAYERS, TOKENS, WIDTH = 48, 65_536, 2_048


def layer(h: Any, weight: Any) -> Any:
    """A residual layer: from tokens by width to the same."""
    return h + jax.nn.gelu(h @ weight)


def loss(weights: Any, tokens: Any) -> Any:
    """The mean square of what the last layer gives."""
    step = lambda h, weight: (layer(h, weight), None)  # noqa: E731
    h, _ = jax.lax.scan(step, tokens, weights)
    return jnp.mean(jnp.square(h.astype(jnp.float32)))


def problem() -> tuple[Any, ...]:
    """The function to differentiate, and the types of its arguments."""
    weights = jax.ShapeDtypeStruct((LAYERS, WIDTH, WIDTH), jnp.bfloat16)
    return loss, weights, jax.ShapeDtypeStruct((TOKENS, WIDTH), jnp.bfloat16)

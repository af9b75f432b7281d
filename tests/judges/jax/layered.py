"""Networks of layers: in a loop, as they mostly are, and one after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.engines.jaxpr.support.networks import layer as attention
from tests.engines.jaxpr.support.networks import loss, start, weights

WS = np.sin(np.arange(32.0 * 24 * 24)).reshape(32, 24, 24) / 20
H = np.ones((24, 24))


def step(h: Any, w: Any) -> tuple[Any, Any]:
    for _ in range(3):
        h = h + jnp.tanh(jnp.sin(h @ w)) / 9
    return h, h[0]


def scanned_layers(ws: Any) -> Any:
    h, rows = lax.scan(step, H, ws)
    return jnp.sum(h**2) + jnp.sum(rows)


def from_the_last_layer(ws: Any) -> Any:
    return jnp.sum(lax.scan(step, H, ws, reverse=True, unroll=2)[0] ** 2)


def twice_in_a_loop(ws: Any) -> Any:
    turn = lambda h, _: (lax.scan(step, h, ws)[0], None)  # noqa: E731
    return jnp.sum(lax.scan(turn, H, None, length=2)[0] ** 2)


def between_others(ws: Any) -> Any:
    h, _ = lax.scan(step, jnp.cos(H @ ws[0]), ws)
    return jnp.sum(jnp.exp(-h @ ws[1]))


def numbered(ws: Any) -> Any:
    body = lambda i, h: step(h, ws[i])[0]  # noqa: E731
    return jnp.sum(lax.fori_loop(0, 32, body, H) ** 2)


IN_LOOPS = [
    scanned_layers,
    from_the_last_layer,
    twice_in_a_loop,
    between_others,
    numbered,
]


def perceptron(w: Any, x: Any) -> Any:
    for each in w:
        x = jnp.tanh(x @ each)
    return (x**2).sum()


def convolutions(w: Any, x: Any) -> Any:
    for each in w:
        x = x + jax.nn.relu(lax.conv_general_dilated(x, each, (1, 1), "SAME"))
    return (x**2).mean()


def drawn(*shape: int) -> Any:
    return jax.random.normal(jax.random.key(len(shape)), shape) / 6


NETWORKS: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    f.__name__: (f, lambda: (WS,)) for f in IN_LOOPS
} | {
    "perceptron": (perceptron, lambda: ([drawn(16, 16)] * 6, drawn(64, 16))),
    "attention": (lambda w, h: loss(attention, w, h), lambda: (weights(2), start())),
    "convolutions": (
        convolutions,
        lambda: ([drawn(4, 4, 3, 3)] * 3, drawn(2, 4, 12, 12)),
    ),
}
"""By name, a loss and what makes its arguments."""

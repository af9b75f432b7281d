"""A user's own code, read by a strict type checker: signatures are kept.

Not run: `make lint` checks it (`assert_type` is an error of pyright's if it fails).
"""

from collections.abc import Callable
from typing import Any, assert_type

import jax

import retape
import retape.jax


def loss(x: jax.Array, power: int) -> jax.Array:
    return x**power


def body(carry: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
    return carry * x, None


@retape.jax.checkpoint
def block(x: jax.Array) -> jax.Array:
    return x * x


@retape.jax.checkpoint(policy=retape.within("1 GiB"))
def planned(x: jax.Array) -> jax.Array:
    return x * x


def use(x: jax.Array) -> None:
    assert_type(block(x), jax.Array)
    assert_type(planned(x), jax.Array)
    assert_type(retape.jax.checkpoint(loss, x, 2), jax.Array)
    assert_type(retape.jax.checkpointed(loss)(x, 2), jax.Array)
    assert_type(
        retape.jax.checkpointed(loss, plan=retape.logarithmic())(x, power=2), jax.Array
    )
    assert_type(retape.jax.value_and_grad(loss)(x, 2), tuple[jax.Array, Any])
    assert_type(retape.jax.scan(body, x, x), tuple[jax.Array, None])
    assert_type(retape.jax.fori_loop(0, 9, lambda i, y: y * x, x), jax.Array)
    assert_type(retape.jax.while_loop(lambda y: y > 1, lambda y: y / 2, x), jax.Array)
    gradient = retape.jax.grad(loss)
    gradient(x, 2)
    gradient(x, "two")  # pyright: ignore[reportArgumentType]
    pair: Callable[[jax.Array, int], jax.Array] = retape.jax.checkpoint(loss)
    pair(x, 2)


def plain(x: float, k: int) -> float:
    return x * x


def reverse(x: float, k: int, g: float) -> float:
    return 2 * x * g


result = retape.adjoint(
    retape.Program(plain, reverse), 1.5, seed=lambda x: 1.0, steps=3
)
assert_type(result, retape.Adjoint[float, float])

"""Programs that differ a little are kept apart.

That equal ones are compiled once is in `api/test_call_cache.py`, that types of the
inputs count in `judges/jax/test_weak_types.py`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape.jax
from retape.jax import checkpoint
from tests.engines.jaxpr.support.networks import assert_near


def looped(step: float) -> Any:
    return lambda x: lax.fori_loop(0, 3, lambda i, v: jnp.sin(v) + step, x)


PAIRS: list[tuple[Any, Any]] = [
    (jnp.sin, jnp.cos),
    (lambda x: x**2 + 1.0 * x, lambda x: x**2 + 2.0 * x),
    (lambda x: 1.0 / (x * 0.0), lambda x: 1.0 / (x * -0.0)),
    (lambda x: (x - x[0] ** 2)[1:], lambda x: (x[0] ** 2 - x)[1:]),
    (lambda x: x[:2] ** 2, lambda x: x[1:] ** 2),
    (lambda x: jnp.stack([x, x**2])[0], lambda x: jnp.stack([x**2, x])[0]),
    (lambda x: jnp.sin(x.sum()), lambda x: jnp.sin(x.sum(keepdims=True))),
    (looped(1.0), looped(2.0)),
    (lambda x: x**2 * np.arange(3.0), lambda x: x**2 * np.arange(1.0, 4.0)),
    (lambda x: x**2, lambda x: x.astype(jnp.float32) ** 2),
]


@pytest.mark.release
@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_a_small_difference_is_seen(a: Any, b: Any) -> None:
    """One after the other, and the first again: each has its own gradient."""
    x = jnp.asarray([0.3, 0.5, 0.9])
    for fun in (a, b, a):
        total = lambda x, f=fun: jnp.sum(f(x))  # noqa: E731
        assert_near(retape.jax.grad(total)(x), jax.grad(total)(x), 1e-6)


def test_a_custom_rule_that_is_made_anew_is_another_one() -> None:
    def made(slope: float) -> Any:
        rule = jax.custom_jvp(lambda x: jnp.sin(x))
        rule.defjvp(lambda p, t: (jnp.sin(*p), slope * t[0]))
        return rule

    def value(x: Any) -> Any:
        return sum(checkpoint(made(slope), x).sum() for slope in (1.0, 2.0))

    assert_near(jax.grad(value)(jnp.ones(3)), 3 * jnp.ones(3))

"""Budgets around functions whose layers are a `lax.scan`, as they mostly are.

The compiler is the oracle of bytes, `jax.grad` that of numbers. Stored as it is, each
of the programs takes several times the budget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape
import retape.jax as rj

LAYERS, ROWS, WIDTH = 12, 128, 32
W = jnp.sin(jnp.arange(LAYERS * WIDTH * 4.0 * WIDTH)).reshape(LAYERS, WIDTH, -1) / 6
V = jnp.cos(jnp.arange(LAYERS * WIDTH * 4.0 * WIDTH)).reshape(LAYERS, -1, WIDTH) / 9
H = jnp.ones((ROWS, WIDTH))


def block(h: Any, w: Any) -> tuple[Any, Any]:
    return h + jax.nn.gelu(h @ w[0]) @ w[1], jnp.mean(h)


def scanned_layers(w: Any, v: Any) -> Any:
    h, means = lax.scan(block, H, (w, v))
    return jnp.sum(h**2) + jnp.sum(means)


def with_a_wide_head(w: Any, v: Any) -> Any:
    """What stands around the loop takes as much as what is in it."""
    h = lax.scan(block, H, (w, v))[0]
    for i in range(6):
        h = h + jnp.tanh(jax.nn.gelu(h @ w[i]) @ v[i])
    return jnp.sum(h**2)


def from_the_last_layer(w: Any, v: Any) -> Any:
    return jnp.sum(lax.scan(block, H, (w, v), reverse=True, unroll=2)[0] ** 2)


def twice_in_a_loop(w: Any, v: Any) -> Any:
    again = lambda h, _: (lax.scan(block, h, (w, v))[0], None)  # noqa: E731
    return jnp.sum(lax.scan(again, H, None, length=2)[0] ** 2)


def not_a_scalar(w: Any, v: Any) -> Any:
    return lax.scan(block, H, (w, v))[0]


PROGRAMS = [
    scanned_layers,
    with_a_wide_head,
    from_the_last_layer,
    twice_in_a_loop,
    not_a_scalar,
]


def gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    return jax.grad(lambda w, v: jnp.sum(f(w, v)), (0, 1))


def taken(f: Callable[..., Any]) -> int:
    compiled = jax.jit(gradient(f)).lower(W, V).compile()
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.slow
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_a_budget_is_held_inside_of_loops(f: Callable[..., Any]) -> None:
    budget = taken(f) // 3
    held = rj.checkpoint(f, policy=retape.within(budget))
    assert taken(held) <= budget
    pairs = zip(gradient(held)(W, V), gradient(f)(W, V), strict=True)
    for got, want in pairs:
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_what_is_named_as_the_least_is_kept() -> None:
    f = scanned_layers
    with pytest.raises(retape.BudgetError, match="least") as told:
        taken(rj.checkpoint(f, policy=retape.within(1000)))
    least = told.value.least
    assert least < taken(f) // 5
    assert taken(rj.checkpoint(f, policy=retape.within(least))) <= least


@pytest.mark.slow
def test_a_greater_budget_is_no_more_work() -> None:
    def work(budget: int) -> float:
        held = gradient(rj.checkpoint(scanned_layers, policy=retape.within(budget)))
        return jax.jit(held).lower(W, V).compile().cost_analysis()["flops"]

    plain = taken(scanned_layers)
    found = [work(plain // n) for n in (5, 3, 1)]
    assert found == sorted(found, reverse=True)
    # Nothing is run again that need not be, but for what ties the value.
    stored = jax.jit(gradient(scanned_layers)).lower(W, V).compile().cost_analysis()
    assert found[-1] == pytest.approx(stored["flops"], rel=0.05)

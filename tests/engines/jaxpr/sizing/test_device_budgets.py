"""Budgets of the form that a GPU gets, by what this machine's compiler reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import retape
import retape.jax

X = jnp.linspace(0.1, 1.0, 1000)


def known(x: Any) -> Any:
    step = lambda h, _: (jnp.sin(h) * jnp.cos(h), None)  # noqa: E731
    return jnp.sum(lax.scan(step, x, length=100)[0])


def unknown(x: Any) -> Any:
    last = 30 + jnp.any(jnp.isnan(x))
    return jnp.sum(lax.fori_loop(0, last, lambda _, h: jnp.sin(h), x))


def taken(fun: Callable[..., Any], plan: retape.Plan) -> int:
    gradient = retape.jax.grad(fun, plan=plan, loops="device")
    found = jax.jit(gradient).lower(X).compile().memory_analysis()
    assert found is not None
    return found.temp_size_in_bytes


@pytest.mark.slow("unknown")
@pytest.mark.parametrize("fun", [known, unknown])
def test_budgets_are_held_from_the_least_on(fun: Callable[..., Any]) -> None:
    with pytest.raises(retape.BudgetError) as caught:
        taken(fun, retape.within(1))
    least = caught.value.least
    assert least
    plans = [retape.fixed_space(snapshots=d, stage=1) for d in (1, 2)]
    assert least <= 1.05 * min(taken(fun, plan) for plan in plans)
    for budget in (least, 3 * least):
        assert taken(fun, retape.within(budget)) <= budget

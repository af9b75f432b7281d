"""`advise`: what `plan` says, and a plan for loops of unknown length."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax


def settle(x: Any) -> Any:
    def body(v: Any) -> Any:
        return v - 0.01 * jnp.sin(v)

    return jnp.sum(jax.lax.while_loop(lambda v: jnp.max(v) > 0.5, body, x))


@pytest.mark.slow
def test_a_loop_of_unknown_length_is_given_the_plan_that_uses_the_budget() -> None:
    x = jnp.linspace(0.5, 2.0, 1000)
    found = retape.jax.advise(settle, x, memory="300 kB")
    assert not found.fits and found.chosen.name == "binomial"
    assert 150_000 < found.chosen.peak_bytes <= 300_000
    assert "unknown" in str(found) and "binomial keeps to" in str(found)
    got = jax.jit(retape.jax.grad(settle, plan=found.as_plan()))(x)
    slope = jax.jvp(settle, (x,), (x,))[1]
    np.testing.assert_allclose(jnp.vdot(got, x), slope, rtol=1e-11)
    with pytest.raises(retape.BudgetError, match="`memory='30 kB'` does not suffice"):
        retape.jax.advise(settle, x, memory="30 kB")


def test_where_it_does_not_pay_the_advice_is_to_do_nothing() -> None:
    found = retape.jax.advise(lambda x: jnp.sum(jnp.tanh(x)), jnp.ones(9), memory="1MB")
    assert found.fits and "It fits as it is: do nothing." in str(found)


def test_other_refusals_are_passed_on() -> None:
    with pytest.raises(retape.GradientTypeError, match="gradients of a scalar"):
        retape.jax.advise(lambda x: x, jnp.ones(3), memory="1 MB")
    with pytest.raises(retape.UnsupportedError, match="cannot be called"):
        retape.jax.advise(3, memory="1 MB")  # pyright: ignore

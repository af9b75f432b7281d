"""`retape.jax.show`: any function, any plan, and what it says of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import retape
import retape.jax


@jax.custom_vjp
def clipped(x):
    return x


clipped.defvjp(lambda x: (x, None), lambda _, c: (jnp.clip(c, -1, 1),))


@jax.custom_jvp
def rooted(x):
    return jnp.sqrt(x)


rooted.defjvp(lambda x, t: (rooted(*x), 0.5 * t[0] / rooted(*x)))


def looped(step):
    return lambda x: jnp.sum(lax.while_loop(lambda x: x[0] < 9.0, step, x))


def layers(x):
    for _ in range(16):
        x = jnp.tanh(x @ jnp.eye(64, dtype=jnp.float32)) + x
    return jnp.sum(x)


FUNCTIONS = {
    "custom reverse rules": looped(lambda x: clipped(x) + 1.0),
    "custom forward rules": looped(lambda x: rooted(x) + 1.0),
    "keys": looped(lambda x: x + jax.random.uniform(jax.random.key(3), x.shape)),
    "linear algebra": looped(lambda x: x + jnp.linalg.inv(jnp.outer(x, x) + 3)[0]),
    "a checkpoint": looped(jax.checkpoint(lambda x: jnp.sin(x) + 1.0)),
    "no loop": lambda x: jnp.sum(jnp.sin(x)),
    "a retape call": lambda x: retape.jax.checkpointed(looped(lambda x: x + 1.0))(x),
}


def passes(text):
    return [line[3:] for line in text.splitlines() if line.startswith("== ")]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_function_is_shown(name):
    text = retape.jax.show(FUNCTIONS[name], jnp.ones(3))
    assert passes(text)[0] == "traced" and passes(text)[-1] == "share_cotangents"
    assert "program(a: f" in text


def test_types_stand_for_arrays():
    types = jax.ShapeDtypeStruct((3,), jnp.float32)
    assert retape.jax.show(FUNCTIONS["no loop"], types) == retape.jax.show(
        FUNCTIONS["no loop"], jnp.ones(3, jnp.float32)
    )


def test_a_pass_that_does_nothing_says_so():
    text = retape.jax.show(FUNCTIONS["no loop"], jnp.ones(3))
    assert "== hoist_pvary\n(as before)\n" in text


@pytest.mark.slow
def test_a_budget_shows_the_blocks_that_it_needs():
    x = jnp.ones((256, 64), jnp.float32)
    whole = retape.jax.show(layers, x)
    budget = retape.jax.show(layers, x, plan=retape.within("1 MB"))
    assert "split_blocks" not in passes(whole)
    assert "split_blocks" in passes(budget)
    assert "block 3:" in budget and "block 3:" not in whole


def test_a_block_without_a_derivative_is_refused_as_by_grad():
    def called(x):
        return x + jax.pure_callback(lambda x: x, x, x, vmap_method="sequential")

    with pytest.raises(retape.UnsupportedError, match="no reverse-mode rule"):
        retape.jax.show(looped(called), jnp.ones(3))


def test_what_grad_refuses_is_refused():
    with pytest.raises(retape.GradientTypeError):
        retape.jax.show(lambda x: x, jnp.ones(3))

"""`retape.jax.show`: any function, any plan, and what it says of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import retape
import retape.jax
from tests.judges.jax.constructs import CONSTRUCTS, turned, until


def layers(x):
    for _ in range(16):
        x = jnp.tanh(x @ jnp.eye(64, dtype=jnp.float32)) + x
    return jnp.sum(x)


FUNCTIONS = {construct.name: construct.fun for construct in CONSTRUCTS[::2]} | {
    "keys": lambda x: until(lambda v: v + jax.random.uniform(jax.random.key(3)), x),
    "linear algebra": lambda x: until(
        lambda v: jnp.linalg.inv(v + jnp.eye(2))[0, 0], x
    ),
    "no loop": turned,
    "a retape call": retape.jax.checkpointed(lambda x: until(jnp.sin, x)),
}


def passes(text):
    return [line[3:] for line in text.splitlines() if line.startswith("== ")]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_function_is_shown(name):
    text = retape.jax.show(FUNCTIONS[name], jnp.ones(()))
    assert passes(text)[0] == "traced" and passes(text)[-1] == "share_cotangents"
    assert "program(a: f" in text
    # A pass that does nothing says so.
    assert "== hoist_pvary\n(as before)\n" in text


def test_types_stand_for_arrays():
    of_type = retape.jax.show(turned, jax.ShapeDtypeStruct((), float))
    assert of_type == retape.jax.show(turned, jnp.ones(()))


@pytest.mark.slow
def test_a_budget_shows_the_blocks_that_it_needs():
    x = jnp.ones((256, 64), jnp.float32)
    whole = retape.jax.show(layers, x)
    budget = retape.jax.show(layers, x, plan=retape.within("1 MB"))
    assert "split_blocks" not in passes(whole)
    assert "split_blocks" in passes(budget)
    assert "block 3:" in budget and "block 3:" not in whole


def test_what_grad_refuses_is_refused():
    called = lambda x: x + jax.pure_callback(lambda x: x, x, x)  # noqa: E731
    looped = lambda x: lax.while_loop(lambda x: x < 9.0, called, x)  # noqa: E731
    with pytest.raises(retape.UnsupportedError, match="no reverse-mode rule"):
        retape.jax.show(looped, jnp.ones(()))
    with pytest.raises(retape.GradientTypeError):
        retape.jax.show(lambda x: x, jnp.ones(3))

"""What is only run, on a GPU: the same numbers, a wait for each chunk."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import retape
import retape.jax
from retape.engines.jaxpr.calls._forward_form import forward_form
from tests.engines.jaxpr.support.programs import assert_close

PLAN = retape.fixed_space(snapshots=4, stage=32)


def until(x: jax.Array) -> jax.Array:
    """A run of 100 steps, whose length only its end tells, with a branch in each."""
    more = lambda s: (s[0] < 100) & (jnp.sum(s[1]) < 1e6)  # noqa: E731
    step = lambda s: (s[0] + 1, moved(s[1], x))  # noqa: E731
    return jnp.sum(jax.lax.while_loop(more, step, (0, x))[1] ** 2)


def moved(v: jax.Array, x: jax.Array) -> jax.Array:
    return jax.lax.cond(v[0] > 0.5, lambda v: v * 0.9, jnp.cos, v) + 0.1 * x


X = jnp.linspace(0.1, 1, 999)


def test_a_value_hardly_waits() -> None:
    marked = retape.jax.checkpointed(until, plan=PLAN)
    value, waits = retape.jax.count_waits(marked, X)
    assert_close(value, until(X), 1e-6)
    assert waits == 3  # two chunks of up to 64 steps, and the last test
    kept = retape.jax.checkpointed(until, plan=PLAN, loops="host")
    assert retape.jax.count_waits(kept, X).waits == 201


def test_the_form_can_be_forced_on_a_cpu() -> None:
    forced = retape.jax.checkpointed(until, plan=PLAN, loops="device")
    assert_close(forced(X), until(X), 1e-6)
    along = jax.jvp(forced, (X,), (X,))
    assert_close(along, jax.jvp(until, (X,), (X,)), 1e-5)
    texts = [
        jax.jit(retape.jax.checkpointed(until, plan=PLAN, loops=loops)).lower(X)
        for loops in ("device", None)
    ]
    # A loop of chunks, one of the steps in it; the loop as it is.
    assert [t.as_text().count("stablehlo.while") for t in texts] == [2, 1]


def squares(x: Any) -> Any:
    return jax.lax.fori_loop(0, 5, lambda _, v: v * v, x)


def talks(x: Any) -> Any:
    def step(v: Any) -> Any:
        jax.debug.callback(lambda _: None, v)
        return 2 * v

    return jax.lax.while_loop(lambda v: v < 9, step, x)


@pytest.mark.parametrize("fun", [squares, talks])
def test_what_does_not_wait_or_talks_stays_as_it_is(fun: Any) -> None:
    program = jax.make_jaxpr(fun)(1.0)
    assert forward_form(program, None, ["cuda"]) is program
    assert forward_form(program, None, ["cpu"]) is program


def test_a_sweep_is_none_of_these() -> None:
    """Batched or differentiated it keeps the form that it was made in."""
    gradient = retape.jax.grad(until, plan=PLAN)
    batch = jax.make_jaxpr(jax.vmap(gradient))(jnp.stack([X[:9], X[:9]]))
    (call,) = (e for e in batch.eqns if e.primitive.name == "retape_call")
    made = call.params["jaxpr"]
    assert forward_form(made, PLAN, ["cuda"]) is made

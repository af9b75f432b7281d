"""What is only run, on a GPU: the same numbers, a wait for each chunk."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import retape
import retape.jax
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


def loops_in(fun: Any) -> int:
    return jax.jit(fun).lower(1.0).as_text().count("stablehlo.while")


def test_what_does_not_wait_stays_as_it_is() -> None:
    forced = retape.jax.checkpointed(squares, plan=PLAN, loops="device")
    assert loops_in(forced) == loops_in(squares) == 1


def test_what_talks_says_the_same() -> None:
    said: list[float] = []

    def talks(x: Any) -> Any:
        def step(v: Any) -> Any:
            jax.debug.callback(lambda v: said.append(float(v)), v)
            return 2 * v

        return jax.lax.while_loop(lambda v: v < 9, step, x)

    assert retape.jax.checkpointed(talks, plan=PLAN, loops="device")(1.0) == 16
    jax.effects_barrier()
    assert said == [1, 2, 4, 8]


@pytest.mark.slow
@pytest.mark.parametrize("how", [jax.vmap, lambda f: jax.jit(jax.vmap(f))])
def test_a_batch_of_sweeps_keeps_its_numbers(how: Any) -> None:
    """They are in this form already, and are not put into it once more."""
    gradient = retape.jax.grad(until, plan=PLAN, loops="device")
    xs = jnp.stack([X[:9], 0.5 * X[:9]])
    want = jnp.stack([retape.jax.grad(until, plan=PLAN, loops="host")(x) for x in xs])
    assert_close(how(gradient)(xs), want, 1e-5)

"""What is only run, on a GPU: the same numbers, a wait for each chunk, and choices.

A conditional is a choice only where both branches may run.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape
import retape.jax
from tests.engines.jaxpr.support.programs import assert_close

PLAN = retape.fixed_space(snapshots=4, stage=32)
X = jnp.linspace(0.1, 1, 999)


def marked(fun: Any, loops: Any = "device") -> Any:
    """In the device's form, which can be forced on a CPU."""
    return retape.jax.checkpointed(fun, plan=PLAN, loops=loops)


def count(what: str, fun: Any, *args: Any) -> int:
    """Loops (`while`) or conditionals (`case`, `if`) of a program as it is lowered."""
    text = jax.jit(fun).lower(*args).as_text()
    return sum(text.count(f"stablehlo.{name}") for name in what.split())


def until(x: Any) -> Any:
    """A run of 100 steps, whose length only its end tells, with a branch in each."""
    more = lambda s: (s[0] < 100) & (jnp.sum(s[1]) < 1e6)  # noqa: E731
    moved = lambda v: lax.cond(v[0] > 0.5, lambda v: v * 0.9, jnp.cos, v)  # noqa: E731
    step = lambda s: (s[0] + 1, moved(s[1]) + 0.1 * x)  # noqa: E731
    return jnp.sum(lax.while_loop(more, step, (0, x))[1] ** 2)


def test_a_value_hardly_waits() -> None:
    value, waits = retape.jax.count_waits(marked(until, None), X)
    assert_close(value, until(X), 1e-6)
    assert waits == 3  # two chunks of up to 64 steps, and the last test
    assert retape.jax.count_waits(marked(until, "host"), X).waits == 201


def test_the_form_can_be_forced_on_a_cpu() -> None:
    forced = marked(until)
    assert_close(forced(X), until(X), 1e-6)
    assert_close(jax.jvp(forced, (X,), (X,)), jax.jvp(until, (X,), (X,)), 1e-5)
    # A loop of chunks, one of the steps in it; the loop as it is.
    assert (
        count("while", forced, X) == 2 and count("while", marked(until, None), X) == 1
    )
    # What does not wait stays as it is.
    squares = lambda x: lax.fori_loop(0, 5, lambda _, v: v * v, x)  # noqa: E731
    assert count("while", marked(squares), 1.0) == count("while", squares, 1.0) == 1


def test_what_talks_says_the_same() -> None:
    said: list[float] = []

    def step(v: Any) -> Any:
        jax.debug.callback(lambda v: said.append(float(v)), v)
        return 2 * v

    assert marked(lambda x: lax.while_loop(lambda v: v < 9, step, x))(1.0) == 16
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


# Branches -----------------------------------------------------------------------------


def nested(x: Any, i: Any) -> Any:
    """Three branches, one with another conditional in a loop of it; keys, too."""

    def turn(c: Any, _: Any) -> Any:
        return lax.cond(c > 0, lambda v: v * x, lambda v: jnp.sin(v) - x, c), None

    key = jax.random.key(0)
    key = lax.cond(x > 1, lambda k: jax.random.fold_in(k, 1), lambda k: k, key)
    branches = [lambda v: v, lambda v: lax.scan(turn, v, None, length=3)[0], jnp.cos]
    return lax.switch(i, branches, x), jax.random.uniform(key)


@pytest.mark.slow("1")
@pytest.mark.parametrize("index", [-3, pytest.param(0, marks=pytest.mark.slow), 1, 7])
def test_a_choice_is_what_the_branch_makes(index: int) -> None:
    chosen = marked(nested)
    assert count("case if", nested, 0.5, index)
    assert not count("case if", chosen, 0.5, index)
    for x in (-0.7, 0.5, 1.5):
        np.testing.assert_allclose(chosen(x, index), nested(x, index), rtol=1e-6)


def may_not_end(x: Any) -> Any:
    return lax.while_loop(lambda v: v < 9, lambda v: v * v, x)


def dear(x: Any) -> Any:
    return jnp.sum(jnp.eye(600) @ (x + jnp.eye(600)) @ jnp.eye(600))


def test_what_may_not_be_run_in_vain_is_not() -> None:
    called: list[Any] = []

    def talks(x: Any) -> Any:
        jax.debug.callback(called.append, x)
        return 2 * x

    for branch in (may_not_end, talks, dear):
        run = lambda x, b=branch: lax.cond(x > 1, b, lambda v: v, x)  # noqa: E731
        # The first would go on for ever, at one half.
        assert marked(run)(0.5) == 0.5
    jax.effects_barrier()
    assert called == []
    assert count("case if", marked(run), 0.5), "what is dear stays a branch"


def test_a_branch_that_is_not_called_for_leaves_nothing() -> None:
    """Its derivative is infinite there; that of a `where` would be no number."""

    def run(x: Any) -> Any:
        def turn(_: Any, v: Any) -> Any:
            return lax.cond(v > 0, jnp.sqrt, lambda v: 0.5 * v * v, v) - 0.4

        return lax.fori_loop(0, 40, turn, x)

    plan = retape.fixed_space(snapshots=3, stage=16)
    gradient = retape.jax.grad(run, plan=plan, loops="device")
    found, waits = retape.jax.count_waits(gradient, 0.0)
    np.testing.assert_allclose(found, jax.grad(run)(0.0), rtol=1e-6)
    assert waits < 16

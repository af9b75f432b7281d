"""Conditionals as choices: the same numbers, and only where both branches may run."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape
import retape.jax

PLAN = retape.fixed_space(snapshots=3)


def branches_in(fun: Any, *args: Any) -> int:
    """The conditionals of a program that is run in the device's form."""
    text = jax.jit(fun).lower(*args).as_text()
    return text.count("stablehlo.case") + text.count("stablehlo.if")


def for_devices(fun: Any) -> Any:
    return retape.jax.checkpointed(fun, plan=PLAN, loops="device")


def nested(x: Any, i: Any) -> Any:
    """Three branches, one with another conditional in a loop of it; keys, too."""

    def turn(c: Any, _: Any) -> Any:
        return lax.cond(c > 0, lambda v: v * x, lambda v: jnp.sin(v) - x, c), None

    key = jax.random.key(0)
    key = lax.cond(x > 1, lambda k: jax.random.fold_in(k, 1), lambda k: k, key)
    branches = [lambda v: v, lambda v: lax.scan(turn, v, None, length=3)[0], jnp.cos]
    return lax.switch(i, branches, x), jax.random.uniform(key)


@pytest.mark.slow("0")
@pytest.mark.parametrize("index", [-3, 0, 1, 2, 7])
def test_a_choice_is_what_the_branch_makes(index: int) -> None:
    chosen = for_devices(nested)
    assert branches_in(nested, 0.5, index) and not branches_in(chosen, 0.5, index)
    for x in (-0.7, 0.5, 1.5):
        found = chosen(x, index)
        np.testing.assert_allclose(found, nested(x, index), rtol=1e-6)


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
        assert for_devices(run)(0.5) == 0.5
    jax.effects_barrier()
    assert called == []
    assert branches_in(for_devices(run), 0.5), "what is dear stays a branch"


def test_a_branch_that_is_not_called_for_leaves_nothing() -> None:
    """Its derivative is infinite there; that of a `where` would be no number."""

    def run(x: Any) -> Any:
        def turn(_: Any, v: Any) -> Any:
            return lax.cond(v > 0, jnp.sqrt, lambda v: 0.5 * v * v, v) - 0.4

        return lax.fori_loop(0, 40, turn, x)

    plan = retape.fixed_space(snapshots=3, stage=16)
    found, waits = retape.jax.count_waits(
        retape.jax.grad(run, plan=plan, loops="device"), 0.0
    )
    np.testing.assert_allclose(found, jax.grad(run)(0.0), rtol=1e-6)
    assert waits < 16

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
from retape.engines.jaxpr.jaxprs._rewrite import contains
from retape.engines.jaxpr.nest._both_branches import without_waits


def is_conditional(eqn: Any) -> bool:
    return eqn.primitive.name == "cond"


def nested(x: Any, i: Any) -> Any:
    """Three branches, one with another conditional in a loop of it; keys, too."""

    def turn(c: Any, _: Any) -> Any:
        return lax.cond(c > 0, lambda v: v * x, lambda v: jnp.sin(v) - x, c), None

    key = jax.random.key(0)
    key = lax.cond(x > 1, lambda k: jax.random.fold_in(k, 1), lambda k: k, key)
    branches = [lambda v: v, lambda v: lax.scan(turn, v, None, length=3)[0], jnp.cos]
    return lax.switch(i, branches, x), jax.random.uniform(key)


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 7])
def test_a_choice_is_what_the_branch_makes(index: int) -> None:
    program = jax.make_jaxpr(nested)(0.5, index)
    chosen = without_waits(program)
    assert contains(program, is_conditional) and not contains(chosen, is_conditional)
    for x in (-0.7, 0.5, 1.5):
        found = jax.core.eval_jaxpr(chosen.jaxpr, chosen.consts, x, index)
        np.testing.assert_allclose(found, nested(x, index), rtol=1e-6)


def may_not_end(x: Any) -> Any:
    return lax.while_loop(lambda v: v < 9, lambda v: v * v, x)


def talks(x: Any) -> Any:
    jax.debug.callback(lambda _: None, x)
    return 2 * x


def dear(x: Any) -> Any:
    return jnp.sum(jnp.eye(600) @ (x + jnp.eye(600)) @ jnp.eye(600))


@pytest.mark.parametrize("branch", [may_not_end, talks, dear])
def test_what_may_not_be_run_in_vain_stays_a_branch(branch: Any) -> None:
    program = jax.make_jaxpr(lambda x: lax.cond(x > 1, branch, lambda v: v, x))(0.5)
    assert contains(without_waits(program), is_conditional)


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

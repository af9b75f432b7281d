"""A budget is kept by the program that is run, whichever form its loops have.

The rows are programs, the columns the forms of loops. The oracle is the compiler's own
account of the temporaries.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import retape
import retape.jax as rj

X = jnp.linspace(0.1, 1.0, 1000)


def _steps(x: Any) -> Any:
    step = lambda i, x: jnp.roll(jnp.sin(x) * 0.9 + 0.1 * x * x, 1)  # noqa: E731
    return jnp.sum(lax.fori_loop(0, 60, step, x) ** 2)


def _rows(x: Any) -> Any:
    def step(i: Any, s: Any) -> Any:
        big, v = s
        return big.at[i % 4].set(jnp.sin(v) + big[(i + 1) % 4]), jnp.cos(v) * big[i % 4]

    big, v = lax.fori_loop(0, 60, step, (jnp.ones((4, x.size)) * x, x))
    return jnp.sum(big) + jnp.sum(v)


def _nested(x: Any) -> Any:
    def outer(i: Any, s: Any) -> Any:
        turn = lambda j, t: (jnp.sin(t[0]) + 0.1 * t[1], jnp.cos(t[1]) * t[0])  # noqa: E731
        a, b = lax.fori_loop(0, 5, turn, s)
        return b, jnp.roll(a, 1) * 0.9

    a, b = lax.fori_loop(0, 12, outer, (x, x * 0.5))
    return jnp.sum(a * b)


PROGRAMS = {"steps": _steps, "rows": _rows, "nested": _nested}


@pytest.mark.slow
@pytest.mark.parametrize("states", [8, 20])
@pytest.mark.parametrize("loops", ["host", "device"])
@pytest.mark.parametrize("row", PROGRAMS)
def test_a_budget_is_kept(row: str, loops: Any, states: int) -> None:
    budget = states * X.nbytes * (4 if row == "rows" else 1)
    gradient = rj.grad(PROGRAMS[row], plan=retape.within(budget), loops=loops)
    try:
        compiled = jax.jit(gradient).lower(X).compile()
    except retape.BudgetError as error:
        assert error.least is not None and error.least > budget
        return
    assert compiled.memory_analysis().temp_size_in_bytes <= budget

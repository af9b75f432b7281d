"""Every face keeps a budget of bytes, with all that it makes itself.

The rows are loops of a million steps on one number, by every face that takes a plan;
the oracle is the compiler's own account of the temporaries. An array as long as the
loop has 4 MB, and would not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import optimistix as optx
import pytest
from jax import lax

import retape
import retape.diffrax
import retape.equinox
import retape.jax
import retape.optimistix

N = 10**6
BUDGET = 10**6
PLAN = retape.within(BUDGET)
X = jnp.float32(0.5)


def step(x: Any) -> Any:
    return jnp.sin(x) * 1.1


def rows(c: Any, _: Any) -> Any:
    return step(c), None


def pair(c: Any) -> Any:
    return c[0] + 1, step(c[1])


def more(c: Any) -> Any:
    return c[0] < N


def more_by_data(c: Any) -> Any:
    return (c[0] < N) & (c[1] < 9.0)


FACES: dict[str, Callable[[Any], Any]] = {
    "fori_loop": lambda x: retape.jax.fori_loop(
        0, N, lambda i, x: step(x) + 0 * i, x, plan=PLAN
    ),
    "fori_loop, traced bound": lambda x: retape.jax.fori_loop(
        0, N + x.astype(int), lambda i, x: step(x), x, plan=PLAN
    ),
    "while_loop": lambda x: retape.jax.while_loop(more, pair, (0, x), plan=PLAN)[1],
    "while_loop by data": lambda x: retape.jax.while_loop(
        more_by_data, pair, (0, x), plan=PLAN
    )[1],
    "scan": lambda x: retape.jax.scan(rows, x, length=N, plan=PLAN)[0],
    "scan backwards": lambda x: retape.jax.scan(
        rows, x, length=N, reverse=True, plan=PLAN
    )[0],
    "equinox while_loop": lambda x: retape.equinox.while_loop(
        more, pair, (0, x), kind="checkpointed", plan=PLAN
    )[1],
    "equinox while_loop, bounded": lambda x: retape.equinox.while_loop(
        more_by_data, pair, (0, x), max_steps=N, kind="bounded", plan=PLAN
    )[1],
    "equinox scan": lambda x: retape.equinox.scan(
        rows, x, None, N, kind="checkpointed", plan=PLAN
    )[0],
    "checkpointed": retape.jax.checkpointed(
        lambda x: lax.fori_loop(0, N, lambda i, x: step(x) + 0 * i, x), plan=PLAN
    ),
    "marked in checkpointed": retape.jax.checkpointed(
        lambda x: lax.fori_loop(
            0, N, lambda i, x: retape.jax.checkpoint(step)(x) + 0 * i, x
        ),
        plan=PLAN,
    ),
    "counters made inside": retape.jax.checkpointed(
        lambda x: lax.scan(lambda c, i: (step(c) + 0 * i, None), x, jnp.arange(N))[0],
        plan=PLAN,
    ),
    "diffrax": lambda x: diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: -y * args),
        diffrax.Euler(),
        0.0,
        1.0,
        1.0 / N,
        jnp.float32(1.0),
        args=x,
        max_steps=2 * N,
        adjoint=retape.diffrax.RetapeAdjoint(plan=PLAN),
    ).ys[0],
    "optimistix": lambda x: (
        optx.fixed_point(
            lambda y, a: a * jnp.cos(y),
            optx.FixedPointIteration(1e-6, 1e-6),
            X,
            x,
            max_steps=N,
            adjoint=retape.optimistix.RetapeAdjoint(PLAN),
        ).value
    ),
}


SLOW = ("diffrax", "optimistix", "counters made inside", "marked in checkpointed")


@pytest.mark.parametrize(
    "face",
    [pytest.param(f, marks=pytest.mark.slow if f in SLOW else ()) for f in FACES],
)
def test_a_face_keeps_a_budget(face: str) -> None:
    gradient = jax.jit(jax.grad(FACES[face]))
    try:
        told = gradient.lower(X).compile().memory_analysis()
    except retape.BudgetError as error:
        # Refused by name: what does not fit cannot be left out.
        assert error.least is not None and error.least > BUDGET
        return
    assert told is not None and told.temp_size_in_bytes <= BUDGET


def test_arrays_that_are_closed_over_are_told() -> None:
    """They are there before the gradient is: no budget counts them, and all can see."""
    table = jnp.linspace(0.0, 1.0, 1000)
    looked_up = lambda x: lax.fori_loop(  # noqa: E731
        0, 5, lambda i, c: step(c) * table[i], x
    )
    told = retape.jax.explain(looked_up, X, plan=PLAN)
    assert told.closed_over_bytes == table.nbytes
    assert "closed over" in str(told)
    assert retape.jax.explain(step, X, plan=PLAN).closed_over_bytes == 0

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
from tests.judges.jax.loops import LOOPS, UNDER_PLANS

N = 10**6
BUDGET = 10**6
PLAN = retape.within(BUDGET)
X = jnp.float32(0.5)
OPTIONS: dict[str, dict[str, Any]] = {
    "a budget": {"plan": PLAN},
    "levels": {"levels": 5},
}


def step(x: Any) -> Any:
    return jnp.sin(x) * 1.1


def counted(i: Any, x: Any) -> Any:
    return step(x) + 0 * i


def within(mark: Callable[[Any], Any]) -> Callable[[Any], Any]:
    looped = lambda x: lax.fori_loop(0, N, lambda i, x: mark(step)(x) + 0 * i, x)  # noqa: E731
    return retape.jax.checkpointed(looped, plan=PLAN)


FACES: dict[str, Callable[[Any], Any]] = {
    f"{loop}, {name}": lambda x, loop=loop, name=name: LOOPS[loop](
        counted, x, N, **OPTIONS[name]
    )
    for loop in LOOPS
    for name in OPTIONS
    if name == "a budget" or loop not in UNDER_PLANS
} | {
    "fori_loop, traced bound": lambda x: retape.jax.fori_loop(
        0, N + x.astype(int), counted, x, plan=PLAN
    ),
    "scan backwards": lambda x: LOOPS["scan"](counted, x, N, reverse=True, plan=PLAN),
    "equinox while_loop, bounded": lambda x: retape.equinox.while_loop(
        lambda c: (c[0] < N) & (c[1] < 9.0),
        lambda c: (c[0] + 1, step(c[1])),
        (0, x),
        max_steps=N,
        kind="bounded",
        plan=PLAN,
    )[1],
    "checkpointed": within(lambda f: f),
    "marked in checkpointed": within(retape.jax.checkpoint),
    "counters made inside": retape.jax.checkpointed(
        lambda x: lax.scan(lambda c, i: (counted(i, c), None), x, jnp.arange(N))[0],
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


def assert_kept(gradient: Any, x: Any, budget: int) -> None:
    try:
        told = jax.jit(gradient).lower(x).compile().memory_analysis()
    except retape.BudgetError as error:
        # Refused by name: what does not fit cannot be left out.
        assert error.least is not None and error.least > budget
        return
    assert told is not None and told.temp_size_in_bytes <= budget


@pytest.mark.parametrize(
    "face",
    [pytest.param(f, marks=pytest.mark.slow if f in SLOW else ()) for f in FACES],
)
def test_a_face_keeps_a_budget(face: str) -> None:
    assert_kept(jax.grad(FACES[face]), X, BUDGET)


# The forms that loops of a sweep have -------------------------------------------------


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


LONG = jnp.linspace(0.1, 1.0, 1000)
IN_FORMS = [(_steps, 1), (_rows, 4), (_nested, 1)]
"""Programs, and how many such arrays are a state of them."""


@pytest.mark.slow
@pytest.mark.parametrize("states", [8, 20])
@pytest.mark.parametrize("loops", ["host", "device"])
@pytest.mark.parametrize(("program", "each"), IN_FORMS)
def test_a_budget_is_kept_in_each_form(
    program: Any, each: int, loops: Any, states: int
) -> None:
    budget = states * LONG.nbytes * each
    plan = retape.within(budget)
    assert_kept(retape.jax.grad(program, plan=plan, loops=loops), LONG, budget)


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

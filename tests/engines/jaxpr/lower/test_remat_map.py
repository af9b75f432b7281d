"""Scans that carry no derivative: a part of a step, however much they would store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape
import retape.jax
from tests.engines.jaxpr.support.programs import (
    Unrolled,
    assert_close,
    finite_difference,
)

FEW = retape.fixed_space(snapshots=2, stage=2)
X = np.asarray([0.9, -0.4, 1.3])
ROWS = 5
Step = Callable[..., Any]


def mapped(loops: Any, fun: Callable[[Any], Any], xs: Any) -> Any:
    return loops.scan(lambda c, x: (c, fun(x)), None, xs)[1]


def wave(row: Any, x: Any) -> Any:
    return jnp.sin(row * x) + 0.3 * jnp.exp(-row)


def by_rows(loops: Any, y: Any, x: Any) -> Any:
    return mapped(loops, lambda row: wave(row, x), y)


def counted(loops: Any, y: Any, x: Any) -> Any:
    """With a counter beside, and from the last row on."""
    trip = lambda i, row: (i + 1, wave(row, x) * jnp.cos(0.1 * i))  # noqa: E731
    i, rows = loops.scan(trip, 2, y, reverse=True)
    return rows * (1 + 0.01 * i)


def of_nothing(loops: Any, y: Any, x: Any) -> Any:
    """No rows go in, and the derivative by what it reads is a sum over its trips."""
    return y + 0.1 * mapped(loops, lambda k: wave(y[0] + k, x), jnp.arange(0.0, ROWS))


def in_itself(loops: Any, y: Any, x: Any) -> Any:
    return mapped(loops, lambda row: mapped(loops, lambda v: wave(v, x[0]), row), y)


def in_a_branch(loops: Any, y: Any, x: Any) -> Any:
    rows = lambda y: by_rows(loops, y, x)  # noqa: E731
    return loops.cond(jnp.sum(y) > 0.9, rows, lambda y: y * x, y)


def run(loops: Any, step: Step) -> Callable[[Any], Any]:
    def fun(x: Any) -> Any:
        turn = lambda c: (c[0] + 1, 0.7 * step(loops, c[1], x) + 0.1 * c[1])  # noqa: E731
        on = lambda c: (c[0] < 9) & (jnp.sum(c[1]) < 90.0)  # noqa: E731
        start = (0, jnp.outer(jnp.linspace(0.5, 1.0, ROWS), x))
        return jnp.sum(jnp.tanh(loops.while_loop(on, turn, start)[1]))

    return fun


@pytest.mark.slow
@pytest.mark.usefixtures("opened")
@pytest.mark.parametrize("step", [by_rows, counted, of_nothing, in_itself, in_a_branch])
def test_gradients(step: Step) -> None:
    """Against the loop unrolled, forward mode, and finite differences."""
    fun, unrolled = run(lax, step), run(Unrolled, step)
    found = jax.jit(retape.jax.value_and_grad(fun, plan=FEW))(X)
    assert_close(found, jax.value_and_grad(unrolled)(jnp.asarray(X)))
    assert_close(found[1], jax.jacfwd(fun)(X))
    assert_close(found[1], finite_difference(fun, X), 1e-7)


@pytest.mark.slow
@pytest.mark.usefixtures("opened")
def test_a_second_derivative() -> None:
    fun = run(lax, counted)
    gradient = lambda x: jnp.sum(retape.jax.grad(fun, plan=FEW)(x))  # noqa: E731
    second = jax.jit(retape.jax.grad(gradient, plan=FEW))(X)
    assert_close(second, jax.jacfwd(lambda x: jnp.sum(jax.jacfwd(fun)(x)))(X))


# Which stay whole -----------------------------------------------------------------

LARGE = jax.ShapeDtypeStruct((200,), np.float64)


def large(step: Step) -> Callable[[Any], Any]:
    """Steps on a table of half a megabyte."""

    def fun(x: Any) -> Any:
        turn = lambda c: (c[0] + 1, step(c[1], x))  # noqa: E731
        start = (0, jnp.outer(x, jnp.linspace(0.5, 1.0, 300)))
        return jnp.sum(lax.while_loop(lambda c: c[1][0, 0] < 5.0, turn, start)[1])

    return fun


def carried(y: Any, x: Any) -> Any:
    """A derivative goes from row to row."""
    trip = lambda v, row: (jnp.sin(v) + row, wave(row, v))  # noqa: E731
    return lax.scan(trip, y[0], y)[1]


def looping(y: Any, x: Any) -> Any:
    """Each row ends by itself."""
    turn = lambda v: jnp.sin(v) * 0.9  # noqa: E731
    return lax.map(lambda row: lax.while_loop(lambda v: v[0] > 0.1, turn, row), y)


def waves(y: Any, x: Any) -> Any:
    """Rows of which each stores eight times what it is."""

    def row(v: Any) -> Any:
        for _ in range(8):
            v = wave(v, x[0])
        return v

    return lax.map(row, y)


def alone(x: Any) -> Any:
    """Not in a step: each trip is one."""
    return jnp.sum(lax.map(lambda v: wave(jnp.full(300, v), x[0]), x))


@pytest.mark.parametrize(
    ("fun", "loops"),
    [(large(waves), 1), (large(carried), 2), (large(looping), 3), (alone, 1)],
    ids=["a map", "carries a derivative", "holds a loop", "alone"],
)
def test_which_are_opened(fun: Callable[[Any], Any], loops: int) -> None:
    assert retape.jax.explain(fun, LARGE, plan=FEW).loops == loops


@pytest.mark.slow
def test_it_needs_what_a_step_needs() -> None:
    """Snapshots and tape hold the state, and one trip's residuals are few."""

    def taken(step: Step) -> int:
        gradient = jax.jit(retape.jax.grad(large(step), plan=FEW))
        report = gradient.lower(LARGE).compile().memory_analysis()
        assert report is not None
        return report.temp_size_in_bytes

    # The same, its rows all at once: what it stores is there at a time.
    at_once = jax.vmap(lambda row, x: waves(row[None], x)[0], (0, None))
    assert taken(waves) < 12 * 8 * 200 * 300 < taken(at_once)

"""`retape.optimistix.RetapeAdjoint`: solvers reversed through their iterations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest

import retape
import retape.optimistix

PLAN = retape.fixed_space(snapshots=3)
START = np.asarray([1.2, 0.4])


def root(y: Any, a: Any) -> Any:
    return jnp.stack([y[0] ** 2 + y[1] - a, y[0] - y[1] * a])


def valley(y: Any, a: Any) -> Any:
    return (a - y[0]) ** 2 + 5 * (y[1] - y[0] ** 2) ** 2


PROBLEMS: dict[str, Any] = {
    "root": lambda a, adjoint: optx.root_find(
        root, optx.Newton(1e-3, 1e-3), START, a, adjoint=adjoint
    ),
    "fixed point": lambda a, adjoint: optx.fixed_point(
        lambda y, a: a * jnp.cos(y),
        optx.FixedPointIteration(1e-3, 1e-3),
        START,
        a,
        adjoint=adjoint,
    ),
    "least squares": lambda a, adjoint: optx.least_squares(
        root, optx.LevenbergMarquardt(1e-3, 1e-3), START, a, adjoint=adjoint
    ),
    "BFGS": lambda a, adjoint: optx.minimise(
        valley, optx.BFGS(1e-2, 1e-2), START, a, adjoint=adjoint
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_gradient_is_that_of_their_own_adjoint(name: str) -> None:
    def fun(a: Any, adjoint: Any) -> Any:
        return jnp.sum(PROBLEMS[name](a, adjoint).value * jnp.asarray([1.0, 2.0]))

    ours = jax.jit(jax.grad(lambda a: fun(a, retape.optimistix.RetapeAdjoint(PLAN))))
    theirs = jax.jit(jax.grad(lambda a: fun(a, optx.RecursiveCheckpointAdjoint())))
    a = jnp.asarray(0.9)
    np.testing.assert_allclose(ours(a), theirs(a), rtol=1e-12)


@pytest.mark.slow
def test_an_iteration_that_is_stopped_has_another_gradient_than_its_limit() -> None:
    """There the implicit adjoint is wrong; and theirs refuses second order."""

    def stopped(a: Any, adjoint: Any) -> Any:
        solver = optx.FixedPointIteration(1e-9, 1e-9)
        return optx.fixed_point(
            lambda y, a: a * jnp.cos(y),
            solver,
            jnp.asarray(0.5),
            a,
            adjoint=adjoint,
            max_steps=4,
            throw=False,
        ).value

    def by_hand(a: Any) -> Any:
        y = 0.5
        for _ in range(4):
            y = a * jnp.cos(y)
        return y

    a, ours = jnp.asarray(0.9), retape.optimistix.RetapeAdjoint(PLAN)
    want = jax.grad(by_hand)(a)
    got = jax.grad(stopped)(a, ours)
    np.testing.assert_allclose(got, want, rtol=1e-13)
    assert abs(jax.grad(stopped)(a, optx.ImplicitAdjoint()) - want) > 1e-2
    np.testing.assert_allclose(
        jax.hessian(stopped)(a, ours), jax.hessian(by_hand)(a), rtol=1e-12
    )

"""Batches of runs that end at different steps: one sweep for all of them.

The lanes end by themselves, one step from infinity: a derivative beyond the end of a
lane is no number.
"""

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
from tests.engines.jaxpr.support import seams
from tests.engines.jaxpr.support.programs import assert_close
from tests.judges.pairwise import dealt

FEW = retape.fixed_space(snapshots=2, stage=2)
# The second ends where the derivative of a step is infinite, the third never goes on,
# and none of its steps would be a number.
X, W = np.asarray([0.5, 3.99, 4.2, 2.0]), 1.0


def step(v: Any, x: Any, w: Any) -> Any:
    """Up to a limit, beyond which there is no square root."""
    return v + 0.9 * w * jnp.sqrt(4 * w - v) + 0.05 * x


def climb(x: Any, w: Any) -> Any:
    return jnp.sin(lax.while_loop(lambda v: v < 4 * w, lambda v: step(v, x, w), x))


def by_turns(x: Any, w: Any) -> Any:
    """A gate of a branch is not one of the loop: JAX puts the same before both."""
    near = lambda v: v + 0.1 * w + 0.3 * jnp.sqrt(4 * w - v)  # noqa: E731
    far = lambda v: step(v, 0.0, w)  # noqa: E731
    turn = lambda s: (s[0] + 1, lax.cond(s[0] % 2 == 0, far, near, s[1]))  # noqa: E731
    return lax.while_loop(lambda s: s[1] < 4 * w, turn, (0, x))[1]


def lonely(x: Any, w: Any) -> Any:
    """Lanes share nothing that has a derivative."""
    return lax.while_loop(lambda v: v < 3, lambda v: v + 0.5 * jnp.sqrt(4 - v), x)


def lanes(f: Any) -> Any:
    return jax.vmap(f, (0, None))


def total(f: Any) -> Any:
    return lambda xs, w: jnp.sum(f(xs, w))


def both(f: Any, plan: Any) -> Any:
    return retape.jax.grad(f, (0, 1), plan=plan)


def alone(program: Any) -> tuple[Any, Any]:
    """One lane at a time, by forward mode."""
    slopes = [jax.jacfwd(program, (0, 1))(x, W) for x in X]
    by_x, by_w = zip(*slopes, strict=True)
    return jnp.stack(by_x), jnp.stack(by_w)


SQUARE = X.reshape(2, 2)
WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "grad of vmap": lambda f, plan: both(total(lanes(f)), plan)(X, W),
    "vmap of grad": lambda f, plan: lanes(both(f, plan))(X, W),
    "grad of vmap of vmap": lambda f, plan: both(total(lanes(lanes(f))), plan)(
        SQUARE, W
    ),
    "vmap of grad of vmap": lambda f, plan: lanes(both(total(lanes(f)), plan))(
        SQUARE, W
    ),
    "vmap of vmap of grad": lambda f, plan: lanes(lanes(both(f, plan)))(SQUARE, W),
}
PLANS = {
    "few": FEW,
    "default": None,
    "counted first": retape.fixed_space(snapshots=3, split="bisection"),
    "on the host": retape.fixed_space(snapshots=3, stage=2, offload="host"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("way", "plan"), dealt(list(WAYS), list(PLANS)))
@pytest.mark.parametrize("program", [climb, by_turns])
def test_lanes_that_stand_have_no_part(program: Any, way: str, plan: str) -> None:
    """And what all lanes share is summed up over those that are derived together."""
    by_x, by_w = jax.jit(lambda: WAYS[way](program, PLANS[plan]))()
    want_x, want_w = alone(program)
    assert_close(by_x.ravel(), want_x)
    lanes_apart = want_w.reshape(*by_w.shape, -1).sum(-1)
    assert_close(by_w, lanes_apart)


def test_where_only_lanes_have_a_derivative() -> None:
    gradient = jax.jit(retape.jax.grad(lambda x: total(lanes(lonely))(x, W), plan=FEW))
    assert_close(gradient(X), alone(lonely)[0])


def test_without_it_there_is_no_number() -> None:
    """The programs above are such that a derivative beyond the end is seen."""

    def choosing(xs: Any, w: Any) -> Any:
        """As a batched loop is written by hand, and as JAX itself runs one."""
        turn = lambda v, _: (jnp.where(v < 4 * w, step(v, xs, w), v), None)  # noqa: E731
        return jnp.sum(jnp.sin(lax.scan(turn, xs, None, length=9)[0]))

    np.testing.assert_allclose(choosing(X, W), total(lanes(climb))(X, W))
    assert np.isnan(jax.grad(choosing, 1)(X, W))


@pytest.mark.slow
def test_batches_of_second_derivatives() -> None:
    small = lambda x, n: run(x[:3], n)  # noqa: E731
    product = jax.vmap(jax.grad(lambda x, n: retape.jax.grad(small, plan=FEW)(x, n)[0]))
    want = jax.vmap(lambda x, n: jax.jacfwd(jax.jacfwd(small))(x, n)[0])
    np.testing.assert_allclose(product(XS, STEPS), want(XS, STEPS), rtol=1e-9)


# Memory -------------------------------------------------------------------------------

XS = np.linspace(0.1, 1.0, 8 * 500).reshape(8, 500)
STEPS = np.array([5, 30, 17, 12, 0, 1, 25, 29])


def run(x: Any, steps: Any) -> Any:
    def body(c: Any) -> Any:
        return c[0] + 1, jnp.sin(c[1]) * 1.01 + 0.1 * jnp.roll(c[1], 1)

    return jnp.sum(lax.while_loop(lambda c: c[0] < steps, body, (0, x))[1] ** 2)


def taken(fun: Any, *args: Any) -> int:
    report = jax.jit(fun).lower(*args).compile().memory_analysis()
    assert report is not None
    return report.temp_size_in_bytes


def test_a_batch_takes_what_its_runs_take() -> None:
    alone = retape.jax.grad(run, plan=retape.fixed_space(snapshots=5, stage=2))
    many = taken(jax.vmap(alone), XS, STEPS)
    assert many <= 1.1 * len(XS) * taken(alone, XS[0], STEPS[0])


@pytest.mark.slow
def test_a_budget_is_for_each_run() -> None:
    gradient = jax.vmap(retape.jax.grad(run, plan=retape.within(60_000)))
    assert taken(gradient, XS, STEPS) <= 60_000 * len(XS)
    want = [jax.jacfwd(run)(x, n) for x, n in zip(XS, STEPS, strict=True)]
    np.testing.assert_allclose(gradient(XS, STEPS), jnp.stack(want), rtol=1e-12)


def test_only_what_lanes_share_takes_more_registers() -> None:
    """Once more as many, for what a lane's last step started from."""

    def registers(fun: Any) -> int:
        layout = seams.compiled(fun, X, W).layout
        shapes = [layout.avals[p].shape for p in layout.places("register")]
        return shapes.count(X.shape)

    assert registers(total(lanes(lonely))) == 2
    assert registers(total(lanes(climb))) == 3

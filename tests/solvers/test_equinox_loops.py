"""`retape.equinox`: Equinox's calls, with the derivatives that it refuses."""

from __future__ import annotations

import functools
from typing import Any

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import retape
import retape.equinox
import retape.jax


def ragged(x: Any, module: Any, **changed: Any) -> Any:
    """A loop with a counter, a state and two buffers, one written under a condition."""

    def body(carry: Any) -> Any:
        i, y, (rows, odd) = carry
        y = jnp.sin(y) + 0.1 * x
        rows = rows.at[i].set(y)
        odd = odd.at[i].set(jnp.sum(y * i), pred=i % 2 == 1)
        return i + 1, y, (rows, odd)

    options: dict[str, Any] = dict(max_steps=40, kind="checkpointed", checkpoints=3)
    start = (0, x, (jnp.zeros((40, x.size)), jnp.zeros(40)))
    _, y, saved = module.while_loop(
        lambda c: c[0] < 30,
        body,
        start,
        buffers=lambda c: c[2],
        **(options | changed),
    )
    weighted = [
        jnp.sum(s * jnp.arange(40.0).reshape(-1, *[1] * (s.ndim - 1))) for s in saved
    ]
    return jnp.sum(y**2) + sum(weighted)


# A budget is for one sweep: the derivative of a sweep that uses all of it needs more.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "order"),
    [(retape.within("60 kB"), 1), (retape.fixed_space(snapshots=3), 2)],
    ids=["bytes", "snapshots"],
)
def test_derivatives_under_a_plan(plan: retape.Plan, order: int) -> None:
    def fun(x: Any) -> Any:
        return ragged(x, retape.equinox, checkpoints=None, plan=plan, max_steps=None)

    check_grads(
        jax.jit(fun), (jnp.linspace(0.1, 1.0, 2),), order=order, modes=["rev", "fwd"]
    )


@pytest.mark.slow
def test_a_buffer_that_is_read_and_written_twice_has_the_right_gradient() -> None:
    """Equinox does not check that, and then its gradients are wrong."""

    def fun(x: Any, while_loop: Any, **options: Any) -> Any:
        def body(carry: Any) -> Any:
            i, rows = carry
            rows = rows.at[i % 3].set(rows[(i + 1) % 3] * x + 1.0)
            return i + 1, rows

        start = (0, x * jnp.ones(3))
        _, rows = while_loop(lambda c: c[0] < 9, body, start, **options)
        return jnp.sum(rows * jnp.arange(1.0, 4.0))

    def plain(cond: Any, body: Any, carry: Any) -> Any:
        while cond(carry):
            carry = body(carry)
        return carry

    x = jnp.asarray(0.7)
    for kind in ("checkpointed", "bounded"):
        options = {"buffers": lambda c: c[1], "kind": kind, "max_steps": 12}
        got = jax.grad(fun)(x, retape.equinox.while_loop, **options)
        np.testing.assert_allclose(got, jax.grad(fun)(x, plain), rtol=1e-14)


def trajectory(x: Any) -> Any:
    """A loop with buffers inside another, as Equinox makes them."""
    loop = functools.partial(eqxi.while_loop, buffers=lambda s: s[2], kind="lax")

    def inner(state: Any) -> Any:
        i, v, rows = state
        return i + 1, 0.7 * v + 0.1, rows.at[i].set(v * x)

    def outer(state: Any) -> Any:
        i, v, rows = loop(lambda s: s[1] > 0.9, inner, state)
        return i + 1, 1.9 * jnp.sin(v), rows.at[i].set(v)

    start = (jnp.asarray(0), x, jnp.zeros(12))
    found = loop(lambda s: s[0] < 9, outer, start)
    return jnp.vdot(found[2], jnp.arange(1.0, 13.0)) + found[1]


@pytest.mark.slow
def test_no_snapshot_holds_a_buffer_of_equinox() -> None:
    assert retape.jax.explain(trajectory, 0.4).capsule_bytes < 12 * 8
    plan = retape.fixed_space(snapshots=3, stage=3)
    got = jax.jit(retape.jax.grad(trajectory, plan=plan))(0.4)
    np.testing.assert_allclose(got, jax.jacfwd(trajectory)(0.4), rtol=1e-9)


def test_the_bound_ends_the_loop_and_lax_has_no_reverse_mode() -> None:
    def fun(x: Any, kind: Any) -> Any:
        return retape.equinox.while_loop(
            lambda v: v < 1e6, lambda v: v * 2, x, max_steps=5, kind=kind
        )

    assert fun(1.0, "checkpointed") == fun(1.0, "lax") == 32.0
    assert jax.grad(fun)(1.0, "checkpointed") == 32.0
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.grad(fun)(1.0, "lax")

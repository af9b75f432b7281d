"""Arrays of which loops set rows, in any order, again, or as the data says.

Each is held once beside the snapshots, and its derivative is that of the loop unrolled,
by every form in which a program is swept back.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax
from tests.judges.pairwise import dealt

STEPS, X = 11, np.asarray([0.9, -0.4, 1.3])
FEW = retape.fixed_space(snapshots=2, stage=2)
Rows = Callable[[Any, Any, Any], Any]


def a_ring(rows: Any, i: Any, y: Any) -> Any:
    """The last few states."""
    return rows.at[i % 4].set(y)


def a_scattered_history(rows: Any, i: Any, y: Any) -> Any:
    """Rows that the data chooses, many of them again."""
    return rows.at[jnp.int32(99 * jnp.abs(y[0])) % rows.shape[0]].set(y * y)


def a_second_write(rows: Any, i: Any, y: Any) -> Any:
    """A row of two values, of which the second stands; and one of a number."""
    return rows.at[i % 3].set(y).at[i % 3].set(2 * y[::-1]).at[0].set(7.0)


def where_it_holds(rows: Any, i: Any, y: Any) -> Any:
    """A row again, under a condition."""
    return jnp.where(y[1] > -0.2, rows.at[i % 5].set(jnp.sin(y)), rows)


def downwards(rows: Any, i: Any, y: Any) -> Any:
    """From the last row to the first, and on from there: JAX wraps one round."""
    return rows.at[5 - i].set(y)


def by_chance(rows: Any, i: Any, y: Any) -> Any:
    """A row that is drawn, of numbers that are complex in between."""
    key = jax.random.fold_in(jax.random.key(3), i)
    at = jax.random.randint(key, (), 0, 5)
    return rows.at[at].set(jnp.real((y + 2j) * jnp.exp(1j * y)))


PROGRAMS = [
    a_ring,
    a_scattered_history,
    a_second_write,
    where_it_holds,
    downwards,
    by_chance,
]


def stepped(write: Rows, state: Any) -> Any:
    i, v, rows = state
    v = jnp.sin(1.3 * v) + 0.1 * v[::-1]
    return i + 1, v, write(rows, i, v)


def begun(x: Any, n: int) -> Any:
    return jnp.int32(0), x, jnp.ones((n, 3)).at[1].set(x)


def ended(state: Any) -> Any:
    _, v, rows = state
    weights = jnp.arange(1.0, rows.shape[0] + 1)[:, None]
    return jnp.sum(v) + jnp.sum(weights * rows**2), rows


def in_a_loop(write: Rows, n: int = 6, known: bool = False) -> Callable[[Any], Any]:
    def fun(x: Any) -> Any:
        # Not known before it ends: it would be a `scan`.
        more = lambda v: 0 if known else jnp.int32(0.3 * jnp.sin(v[0]))  # noqa: E731
        test = lambda s: s[0] < STEPS + more(s[1])  # noqa: E731
        return ended(jax.lax.while_loop(test, lambda s: stepped(write, s), begun(x, n)))

    return fun


def unrolled(write: Rows) -> Callable[[Any], Any]:
    def fun(x: Any) -> Any:
        state = begun(x, 6)
        for _ in range(STEPS):
            state = stepped(write, state)
        return ended(state)

    return fun


def by_a_plan(plan: Any, **options: Any) -> Callable[[Any], Any]:
    return lambda fun: jax.jit(
        retape.jax.value_and_grad(fun, plan=plan, has_aux=True, **options)
    )(X)


def from_the_host(fun: Any) -> Any:
    store = retape.MemoryStore()
    return retape.jax.value_and_grad(fun, plan=FEW, has_aux=True, store=store)(X)


def in_a_folder(fun: Any) -> Any:
    with tempfile.TemporaryDirectory() as store:
        return retape.jax.value_and_grad(fun, plan=FEW, has_aux=True, store=store)(X)


@functools.cache
def wanted(write: Rows) -> Any:
    return jax.value_and_grad(unrolled(write), has_aux=True)(jnp.asarray(X))


FORMS: dict[str, Callable[[Any], Any]] = {
    "a tape": by_a_plan(FEW),
    "steps": by_a_plan(retape.fixed_space(snapshots=3, stage=1)),
    "one snapshot": by_a_plan(retape.fixed_space(snapshots=1, stage=4)),
    "counted": by_a_plan(retape.fixed_time(sweeps=2)),
    "bytes": by_a_plan(retape.within("8 kB")),
    "folder": in_a_folder,
    "steps of a device": by_a_plan(
        retape.fixed_space(snapshots=3, stage=1), loops="device"
    ),
    "host": from_the_host,
    "device": by_a_plan(FEW, loops="device"),
}


@pytest.mark.slow("a_ring-steps of a device")
@pytest.mark.parametrize(
    ("write", "form"),
    dealt(PROGRAMS, list(FORMS)),
    ids=lambda v: getattr(v, "__name__", v),
)
def test_value_rows_and_gradient(write: Rows, form: str) -> None:
    got = FORMS[form](in_a_loop(write, known=form == "counted"))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), got, wanted(write)
    )


@pytest.mark.parametrize("write", PROGRAMS, ids=lambda f: f.__name__)
def test_no_snapshot_holds_it(write: Rows) -> None:
    def capsule(n: int) -> int:
        loss = lambda x: in_a_loop(write, n)(x)[0]  # noqa: E731
        return retape.jax.explain(loss, X, plan=FEW).capsule_bytes

    assert capsule(600) == capsule(6) < 100


@pytest.mark.slow
@pytest.mark.parametrize("write", PROGRAMS, ids=lambda f: f.__name__)
def test_second_derivatives(write: Rows) -> None:
    loss = lambda x: in_a_loop(write)(x)[0]  # noqa: E731
    gradient, way = retape.jax.grad(loss, plan=FEW), jnp.asarray([0.3, -0.5, 0.2])
    want = jax.hessian(lambda x: unrolled(write)(x)[0])(jnp.asarray(X)) @ way
    forth = jax.jvp(gradient, (jnp.asarray(X),), (way.astype(jnp.result_type(X)),))[1]
    np.testing.assert_allclose(forth, want, rtol=1e-5)
    back = retape.jax.grad(lambda x: jnp.vdot(gradient(x), way), plan=FEW)(X)
    np.testing.assert_allclose(back, want, rtol=1e-5)

"""`fori_loop` and `while_loop` against JAX's own, and the counting of trips."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from numpy.testing import assert_allclose

import retape
import retape.jax
from tests.engines.jaxpr.support import seams


def turn(i: Any, x: Any) -> Any:
    return jnp.sin(x) + i * x / 10


def test_a_while_loop_on_its_data_is_reversed_under_the_default_plan() -> None:
    def root(a: Any) -> Any:
        far = lambda x: abs(x * x - a) > 1e-12  # noqa: E731
        return retape.jax.while_loop(far, lambda x: (x + a / x) / 2, a)

    assert jax.grad(root)(9.0) == pytest.approx(1 / 6, rel=1e-12)


def collatz(s: Any) -> Any:
    n, k, x = s
    return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), k, jnp.sin(x)


@pytest.mark.parametrize(
    ("cond", "body", "init", "count"),
    [
        (lambda s: s[0] < 10, lambda s: (s[0] + 3, s[1] * 2.0), (0, 1.0), 4),
        (lambda s: s[0] != 1, collatz, (27, 5, 1.0), 111),
        (lambda s: s[0] > 5, lambda s: s, (0, 1.0), 0),
        # The counter's step is a value of the state, found in a second round.
        (lambda s: s[0] < 12, lambda s: (s[0] + s[1], s[1] + 1, s[2]), (0, 1, 2.0), 5),
        # The number of trips hangs on a real number, and is not counted.
        (lambda s: s[0] < 1.0, lambda s: (s[0] + 0.3,), (0.0,), None),
        (lambda s: s[0] < s[1], lambda s: (s[0] + 1, s[1] * 0.9), (0, 5.0), None),
    ],
)
def test_trips_are_counted_where_that_can_be_done(
    cond: Any, body: Any, init: Any, count: int | None
) -> None:
    assert counted(cond, body, init) == count
    if count is not None:
        runs = lax.while_loop(
            lambda s: cond(s[1]), lambda s: (s[0] + 1, body(s[1])), (0, init)
        )[0]
        assert runs == count


def counted(cond: Any, body: Any, init: Any) -> int | None:
    """The length of the one loop that is made of it; `None` if it needs a plan."""

    def run(x: Any) -> Any:
        turn = lambda s: (body(s[0]), jnp.sin(s[1]))  # noqa: E731
        loop = retape.jax.while_loop
        return loop(lambda s: cond(s[0]), turn, (init, x), levels=1)[1]

    try:
        made = seams.text(jax.make_jaxpr(run)(0.5))
    except retape.PlanError as error:
        assert "cannot be kept by this `while_loop`" in str(error)
        return None
    lengths = re.findall(r"scan (\d+) times", made)
    return int(lengths[0]) if lengths else 0


def test_a_traced_bound_is_not_counted() -> None:
    def run(stop: Any) -> Any:
        found.append(counted(lambda s: s < stop, lambda s: s + 1, 0))

    found: list[Any] = []
    jax.jit(run)(7)
    assert found == [None]


@pytest.mark.parametrize(
    ("lower", "upper"), [(0, 2.5), (0, jnp.array([2, 3])), (jnp.int16(0), jnp.int32(3))]
)
def test_bounds_that_jax_refuses_are_refused(lower: Any, upper: Any) -> None:
    for loop in (lax.fori_loop, retape.jax.fori_loop):
        with pytest.raises(TypeError, match="must have equal types|boolean scalar"):
            loop(lower, upper, turn, 1.0)


@pytest.mark.slow
def test_a_loop_that_is_not_counted_takes_offload_without_a_plan() -> None:
    def halved(x: Any, **options: Any) -> Any:
        test = lambda v: v.sum() > 1.0  # noqa: E731
        return retape.jax.while_loop(test, lambda v: v / 2, x, **options).sum()

    x = jnp.linspace(1, 9, 4)
    far = jax.make_jaxpr(jax.grad(lambda x: halved(x, offload="host")))(x)
    assert "retape_host_store" in str(far)
    assert "retape_host_store" not in str(jax.make_jaxpr(jax.grad(halved))(x))
    assert_allclose(
        jax.grad(lambda x: halved(x, offload="host"))(x), jax.grad(halved)(x)
    )


@pytest.mark.slow("False-uint32", "False-uint8", "True-uint32")
@pytest.mark.parametrize("dtype", ["uint8", "uint32"])
@pytest.mark.parametrize("jitted", [False, True])
def test_an_unsigned_counter_may_count_down(dtype: str, jitted: bool) -> None:
    """Plain `jax.jit` of such a loop has run one step of ten."""

    def run(x: Any, steps: Any) -> Any:
        going = lambda c: c[0] > jnp.asarray(0, dtype)  # noqa: E731
        step = lambda c: (c[0] - jnp.asarray(1, dtype), jnp.sin(c[1]) * 1.1)  # noqa: E731
        return retape.jax.while_loop(going, step, (steps, x))[1]

    def known(x: Any) -> Any:
        return run(x, jnp.asarray(10, dtype))

    def unknown(x: Any) -> Any:
        steps = jnp.asarray(jnp.where(x > 5.0, 3, 10), dtype)
        return run(x, steps)

    def unrolled(x: Any) -> Any:
        for _ in range(10):
            x = jnp.sin(x) * 1.1
        return x

    for f in (known, unknown):
        slope = jax.value_and_grad(f)
        got = (jax.jit(slope) if jitted else slope)(0.7)
        want = jax.value_and_grad(unrolled)(0.7)
        np.testing.assert_allclose(got, want, rtol=1e-6)
    inside = retape.jax.grad(unknown)(0.7)
    np.testing.assert_allclose(inside, jax.grad(unrolled)(0.7), rtol=1e-6)

"""Long sums side by side: the same sums, and no windows in the compiled program."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.extend import core
from jax.interpreters.ad import add_jaxvals

import retape
import retape.jax
from tests.engines.jaxpr.support import seams

PARTS, WINDOW = 4, 32
"""Running sums at a time; elements that XLA sums up as they are."""


def run(fun: Any, *args: Any) -> list[Any]:
    """The results of a function in one kernel."""
    return core.jaxpr_as_fun(seams.kernel(fun, *args))(*args)


@pytest.mark.slow
@given(
    st.lists(st.integers(1, 70), min_size=1, max_size=3),
    st.integers(1, 5),
    st.data(),
    st.sampled_from([np.float32, np.float64, np.int32]),
)
def test_the_sums_over_any_axes(
    shape: list[int], count: int, data: Any, dtype: Any
) -> None:
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    # Whole numbers, so that rounding hides nothing.
    whole = (np.arange(math.prod(shape)) % 11 - 4).reshape(shape)
    arrays = [(whole * (k + 1)).astype(dtype) for k in range(count)]
    with jax.enable_x64(True):
        several = lambda *xs: [jnp.sum(x, sorted(axes), x.dtype) for x in xs]  # noqa: E731
        got = run(several, *map(jnp.asarray, arrays))
    for s, x in zip(got, arrays, strict=True):
        assert s.dtype == dtype
        assert np.array_equal(s, x.sum(tuple(axes)))


def test_rounding_is_that_of_a_quarter_of_the_sum() -> None:
    x = np.random.default_rng(0).uniform(0.5, 1.5, 2048).astype(np.float32)
    exact = math.fsum(x.tolist())
    (got,) = run(jnp.sum, jnp.asarray(x))
    bound = (x.size / PARTS + 2) * np.finfo(np.float32).eps * exact
    assert abs(float(got) - exact) <= bound


def test_what_is_not_a_sum_in_order_gives_not_a_number() -> None:
    x = np.zeros(100, np.float32)
    x[[3, 90]] = np.inf, -np.inf
    (got,) = run(jnp.sum, jnp.asarray(x))
    assert np.isnan(got)
    assert run(jnp.sum, jnp.asarray(np.abs(x))) == [np.inf]


def _widths(jaxpr: core.Jaxpr) -> list[int]:
    """How many running sums each sum of several arrays has, in order."""
    found = []
    for e in jaxpr.eqns:
        if e.primitive.name == "reduce":
            found.append(len(e.outvars))
        for inner in core.jaxprs_in_params(e.params):
            found += _widths(getattr(inner, "jaxpr", inner))
    return found


def _cotangents(*sums: Any) -> Any:
    return functools.reduce(add_jaxvals, sums)


def independent(x: Any, y: Any) -> Any:
    return jnp.sum(x), jnp.sum(y) * 2, jnp.sum(x * y)


def one_from_another(x: Any, y: Any) -> Any:
    first = jnp.sum(x)
    return jnp.sum(y * first), first * jnp.sum(y), jnp.sum(x + y)


def of_two_lengths(x: Any, y: Any) -> Any:
    return jnp.sum(x), jnp.sum(y[:-1]), jnp.sum(y), jnp.sum(x[1:])


def added_cotangents(x: Any, y: Any) -> Any:
    kept = jnp.sum(x * x)
    several = _cotangents(jnp.sum(x), jnp.sum(y), jnp.sum(x * y), jnp.sum(y * y))
    return several, kept, _cotangents(kept, jnp.sum(3 * y))


def the_same_twice(x: Any, y: Any) -> Any:
    total = jnp.sum(x)
    return _cotangents(total, total), jnp.sum(y)


def many(x: Any, y: Any) -> Any:
    return [jnp.sum(x * k + y) for k in range(6)]


@pytest.mark.parametrize(
    ("fun", "widths"),
    [
        (independent, [3]),
        # The second follows from the first, the others do not follow from the second.
        (one_from_another, [4, 3]),
        (of_two_lengths, [4, 4]),
        # Four sums that are only added are one; what is read twice stays by itself.
        (added_cotangents, [3]),
        (the_same_twice, [4]),
        (many, [4, 4]),
    ],
)
def test_what_goes_together(fun: Any, widths: list[int]) -> None:
    x, y = (jnp.asarray(np.arange(70) % k - 3.0) for k in (11, 7))
    assert _widths(seams.kernel(fun, x, y).jaxpr) == widths
    want = jax.tree.leaves(fun(x, y))
    for a, b in zip(run(fun, x, y), want, strict=True):
        assert np.array_equal(a, b)


_OPERATION = st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(0, 9))


@pytest.mark.slow
@given(st.lists(_OPERATION, max_size=20))
def test_random_programs(drawn: list[tuple[int, int, int]]) -> None:
    """Sums, and what follows from them, in any order."""

    def fun(x: Any, y: Any) -> Any:
        vectors, numbers = [x, y], [jnp.max(x)]
        for kind, i, j in drawn:
            a, b = vectors[i % len(vectors)], vectors[j % len(vectors)]
            s, t = numbers[i % len(numbers)], numbers[j % len(numbers)]
            if kind < 2:
                numbers.append(jnp.sum(a[: 60 - kind]))
            elif kind == 2:
                numbers.append(add_jaxvals(s, t))
            else:
                vectors.append(jnp.mod(a + b if kind == 3 else a * s + b, 7))
        return vectors[2:], numbers

    with jax.enable_x64(True):
        x, y = (jnp.asarray(np.arange(60) % k - 3.0) for k in (11, 7))
        assert "reduce_sum" not in seams.operations(seams.kernel(fun, x, y))
        got = run(fun, x, y)
        want = jax.tree.leaves(fun(x, y))
    for a, b in zip(got, want, strict=True):
        assert np.array_equal(a, b)


def program(x: Any) -> Any:
    """Long sums at the top, in a loop, in a branch and in a call; a short one."""

    def turn(c: Any) -> Any:
        i, x = c
        x = lax.cond(jnp.sum(x) > 9.0, lambda x: x / jnp.sum(x), lambda x: x + 0.5, x)
        return i + 1, x + jax.jit(jnp.sum)(x[: WINDOW + 1]) * jnp.sum(x[:WINDOW]) / 99

    return lax.while_loop(lambda c: c[0] < 5, turn, (jnp.sum(jnp.arange(99)) * 0, x))


def _sums(jaxpr: core.Jaxpr) -> list[tuple[int, Any]]:
    found = []
    for e in jaxpr.eqns:
        if e.primitive.name == "reduce_sum":
            found.append((e.invars[0].aval.size, e.invars[0].aval.dtype))
        for inner in core.jaxprs_in_params(e.params):
            found += _sums(getattr(inner, "jaxpr", inner))
    return found


def test_sums_are_exchanged_however_deep() -> None:
    x = jnp.linspace(0.0, 1.0, 100)
    before = _sums(jax.make_jaxpr(program)(x).jaxpr)
    assert sorted(n for n, _ in before) == [32, 33, 99, 100, 100]
    # Of the long ones only that of whole numbers is left.
    left = _sums(seams.kernel(program, x).jaxpr)
    assert sorted(n for n, _ in left) == [32, 99]
    assert all(np.issubdtype(t, np.integer) for n, t in left if n == 99)
    for a, b in zip(run(program, x), program(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.slow("2048", "1000")
@pytest.mark.parametrize("n", [33, 1000, 2048])
def test_a_sweep_has_no_windows(n: int) -> None:
    """XLA's own rewriting would have made one of each sum over more than 32."""

    def fun(x: Any) -> Any:
        going = lambda c: c[0] < 20  # noqa: E731
        turn = lambda c: (c[0] + 1, c[1] * jnp.cos(0.1 * jnp.sqrt(jnp.sum(c[1] ** 2))))  # noqa: E731
        return jnp.sum(lax.while_loop(going, turn, (0, x))[1])

    x = jnp.linspace(0.1, 1.0, n)
    gradient = retape.jax.grad(fun, plan=retape.fixed_space(snapshots=3))
    one = jax.jit(gradient).lower(x).compile()
    assert "reduce-window(" not in one.as_text()
    assert "reduce-window(" in jax.jit(fun).lower(x).compile().as_text()
    np.testing.assert_allclose(one(x), jax.jacfwd(fun)(x), rtol=2e-5, atol=1e-7)

"""What is compiled once: calls outside of `jit`, by any wrapper of a function."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape
import retape.jax
from tests.engines.jaxpr.support.networks import compilations

PLAN = retape.fixed_space(snapshots=3)
scale = 1.0


def walk(x: Any) -> Any:
    """The derivative is 1.5 to the number of steps, times what `scale` is."""
    return scale * lax.while_loop(lambda v: v < 9.0, lambda v: 1.5 * v, x)


def slope(x: float) -> float:
    return scale * 1.5 ** np.ceil(np.log(9.0 / x) / np.log(1.5))


CALLS = {
    "grad": lambda f, x: retape.jax.grad(f, plan=PLAN)(x),
    "host": lambda f, x: retape.jax.grad(f, plan=PLAN, progress=lambda _: None)(x),
    "jax.grad": lambda f, x: jax.grad(retape.jax.checkpointed(f, plan=PLAN))(x),
    "vjp": lambda f, x: retape.jax.vjp(f, x, plan=PLAN)[1](1.0)[0],
    "vmap": lambda f, x: jax.vmap(retape.jax.grad(f, plan=PLAN))(jnp.array([x]))[0],
    "jvp": lambda f, x: jax.jvp(retape.jax.checkpointed(f), (x,), (1.0,))[1],
    "linearize": lambda f, x: jax.linearize(retape.jax.checkpointed(f), x)[1](1.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_second_call_compiles_nothing(name: str) -> None:
    run, own = CALLS[name], 1.0 + list(CALLS).index(name) / 8
    np.testing.assert_allclose(run(walk, 1.0), slope(1.0), rtol=1e-6)

    def again() -> None:
        for x in (2.0, 3.0, 1.5):
            # A function defined anew, as inside another one, is the same program.
            found = [run(walk, x), run(lambda x: walk(x), x)]
            np.testing.assert_allclose(found, slope(x), rtol=1e-6)

    def another() -> None:
        other = run(lambda x: own * walk(x), 2.0)
        np.testing.assert_allclose(other, own * slope(2.0), rtol=1e-6)

    assert compilations(again) == 0
    # Another program is seen to be one.
    assert compilations(another) > 0


@pytest.mark.parametrize("name", CALLS)
def test_a_changed_number_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new wrapper traces the function again, and `checkpointed` at every call."""
    run, here = CALLS[name], sys.modules[__name__]
    for value in (1.0, 3.0, 1.0):
        monkeypatch.setattr(here, "scale", value)
        np.testing.assert_allclose(run(walk, 2.0), slope(2.0), rtol=1e-6)


@jax.custom_jvp
def by_jvp(x: Any) -> Any:
    return 1.5 * x


@by_jvp.defjvp
def _along(point: Any, way: Any) -> Any:
    # As `jax.nn.relu` does, the rule calls its own function.
    return by_jvp(point[0]), scale * 1.5 * way[0]


@jax.custom_vjp
def by_vjp(x: Any) -> Any:
    return 1.5 * x


by_vjp.defvjp(lambda x: (by_vjp(x), ()), lambda _, ct: (scale * 1.5 * ct,))


@pytest.mark.slow
@pytest.mark.parametrize("ruled", [by_jvp, by_vjp], ids=["jvp", "vjp"])
def test_a_rule_is_known_again_by_what_it_does(
    ruled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that changed is seen; one that did not is not compiled again."""
    here = sys.modules[__name__]

    def run(x: Any) -> Any:
        return lax.while_loop(lambda v: v < 9.0, lambda v: ruled(jax.nn.relu(v)), x)

    kept = retape.jax.checkpointed(run, plan=PLAN)

    def ask() -> None:
        found = [jax.grad(kept)(4.0), retape.jax.grad(run, plan=PLAN)(4.0)]
        np.testing.assert_allclose(found, (scale * 1.5) ** 2, rtol=1e-6)

    seen: list[int] = []
    for value in (1.0, 2.0, 1.0, 2.0):
        monkeypatch.setattr(here, "scale", value)
        seen.append(compilations(ask))
    # With rules of the new kind (`jax_custom_jvp3`) it is made at each call.
    if not made_anew():
        assert seen[1] > 0 and seen[2:] == [0, 0]


def made_anew() -> bool:
    config: Any = jax.config
    flags = ("jax_custom_jvp3", "jax_custom_vjp3")
    return any(getattr(config, flag, False) for flag in flags)


def test_a_rule_that_cannot_be_told_is_asked_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is told which tangents are zero may do anything with that."""

    @jax.custom_jvp
    def told(x: Any) -> Any:
        return 1.5 * x

    told.defjvp(lambda p, t: (1.5 * p[0], scale * 1.5 * t[0]), symbolic_zeros=True)

    def run(x: Any) -> Any:
        return lax.while_loop(lambda v: v < 9.0, lambda v: told(v), x)

    for value in (1.0, 3.0, 1.0):
        monkeypatch.setattr(sys.modules[__name__], "scale", value)
        assert retape.jax.grad(run, plan=PLAN)(4.0) == (value * 1.5) ** 2


def test_constants_are_not_part_of_the_program() -> None:
    """Arrays that a function closes over may change without compiling anything."""

    def ask(value: float) -> None:
        weights = np.full(3, value, np.float32)
        got = retape.jax.grad(lambda x: jnp.sum(weights * walk(x)), plan=PLAN)(2.0)
        np.testing.assert_allclose(got, 3 * value * slope(2.0), rtol=1e-6)

    ask(1.0)
    assert compilations(lambda: list(map(ask, (2.0, 5.0)))) == 0


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [(np.int64, False), (np.float64, False), (np.float32, True), (bool, True)],
)
def test_arrays_of_numpy_are_constants(dtype: Any, wide: bool) -> None:
    """JAX narrows them where 64 bits are off."""
    weights = np.arange(1, 4).astype(dtype)
    with jax.enable_x64(wide):
        plain = jax.grad(lambda x: jnp.sum(weights * x * x))(2.0)
        got = retape.jax.grad(lambda x: jnp.sum(weights * x * x), plan=PLAN)(2.0)
        assert got.dtype == plain.dtype and got == plain
        looped = retape.jax.grad(lambda x: jnp.sum(weights * walk(x)), plan=PLAN)(2.0)
        np.testing.assert_allclose(looped, weights.sum() * slope(2.0), rtol=1e-6)


def test_what_is_remembered_can_be_forgotten() -> None:
    traced: list[Any] = []

    def run(x: Any) -> Any:
        traced.append(x)
        return walk(x)

    def ask(gradient: Any) -> int:
        traced.clear()
        np.testing.assert_allclose(gradient(3.0), slope(3.0), rtol=1e-6)
        return len(traced)

    kept = retape.jax.grad(run, plan=PLAN)
    assert ask(kept) > 0
    assert compilations(lambda: ask(retape.jax.grad(run, plan=PLAN))) == 0
    retape.jax.clear_caches()
    assert ask(kept) == 0  # it keeps its own
    assert compilations(lambda: ask(retape.jax.grad(run, plan=PLAN))) > 0


@pytest.mark.slow
def test_threads_may_share_a_function() -> None:
    gradient = retape.jax.grad(walk, plan=PLAN)
    points = [1.0 + k / 10 for k in range(40)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(gradient, points))
        other = list(pool.map(lambda x: retape.jax.grad(walk, plan=PLAN)(x), points))
    np.testing.assert_allclose(found, list(map(slope, points)), rtol=1e-5)
    assert found == other


# Debugging ------------------------------------------------------------------------

POINT = np.linspace(1.0, 2.0, 5, dtype=np.float32)


def loss(x: Any) -> Any:
    return jnp.sum(lax.while_loop(lambda v: jnp.max(v) < 9.0, lambda v: v * 1.5, x))


DEBUGGED = {
    "grad": lambda: retape.jax.grad(loss, plan=PLAN)(POINT),
    "checkpointed": lambda: jax.grad(retape.jax.checkpointed(loss, plan=PLAN))(POINT),
    "vjp": lambda: retape.jax.vjp(loss, POINT, plan=PLAN)[1](np.float32(1.0))[0],
    "vmap": lambda: jax.vmap(retape.jax.grad(loss, plan=PLAN))(POINT[None])[0],
    "host": lambda: retape.jax.grad(loss, plan=PLAN, progress=lambda _: None)(POINT),
    "measure": lambda: retape.jax.measure(loss, POINT, plan=PLAN).gradient,
    "budget": lambda: retape.jax.grad(loss, plan=retape.within(10_000))(POINT),
}


@pytest.mark.slow("checkpointed", "measure", "vjp", "vmap", "budget")
@pytest.mark.parametrize("name", DEBUGGED)
def test_with_jit_off(name: str) -> None:
    """`jax.disable_jit` runs loops in Python; a sweep is compiled nevertheless."""
    retape.jax.clear_caches()
    with jax.disable_jit():
        got = DEBUGGED[name]()
        with ThreadPoolExecutor(1) as pool:
            elsewhere = pool.submit(DEBUGGED[name]).result()
    assert np.array_equal(got, np.full(5, 1.5**4, np.float32))
    assert np.array_equal(elsewhere, got)


def not_a_number(x: Any) -> Any:
    return loss(x) + jnp.sum(jnp.sqrt(x - 1.5))


WAYS = {
    "grad": retape.jax.grad,
    "checkpointed": lambda f: jax.grad(retape.jax.checkpointed(f)),
    "jit": lambda f: jax.grad(jax.jit(retape.jax.checkpointed(f))),
}


@pytest.mark.slow("grad", "checkpointed")
@pytest.mark.parametrize("name", WAYS)
def test_nans_are_found(name: str) -> None:
    wrong, right = map(WAYS[name], (not_a_number, loss))
    assert np.isnan(wrong(POINT)[0])
    with jax.debug_nans(True):
        with pytest.raises(FloatingPointError, match="nan"):
            wrong(POINT)
        assert not np.isnan(right(POINT)).any()

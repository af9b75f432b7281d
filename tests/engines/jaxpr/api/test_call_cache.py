"""What is compiled once: calls outside of `jit`, by any wrapper of a function."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
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

HERE = sys.modules[__name__]
PLAN = retape.fixed_space(snapshots=3)
scale = 1.0


def halting(step: Callable[[Any], Any], x: Any) -> Any:
    return lax.while_loop(lambda v: jnp.max(v) < 9.0, step, x)


def walk(x: Any) -> Any:
    """The derivative is 1.5 to the number of steps, times what `scale` is."""
    return scale * halting(lambda v: 1.5 * v, x)


def slope(x: float) -> float:
    return scale * 1.5 ** np.ceil(np.log(9.0 / x) / np.log(1.5))


def assert_slopes(found: Any, want: Any) -> None:
    np.testing.assert_allclose(found, want, rtol=1e-6)


def by_host(f: Any, x: Any) -> Any:
    return retape.jax.grad(f, plan=PLAN, progress=lambda _: None)(x)


def lanes(f: Any, x: Any) -> Any:
    return jax.vmap(retape.jax.grad(f, plan=PLAN))(jnp.stack([x]))[0]


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda f, x: retape.jax.grad(f, plan=PLAN)(x),
    "host": by_host,
    "jax.grad": lambda f, x: jax.grad(retape.jax.checkpointed(f, plan=PLAN))(x),
    "vjp": lambda f, x: retape.jax.vjp(f, x, plan=PLAN)[1](jnp.ones_like(x))[0],
    "vmap": lanes,
    "jvp": lambda f, x: jax.jvp(retape.jax.checkpointed(f), (x,), (1.0,))[1],
    "linearize": lambda f, x: jax.linearize(retape.jax.checkpointed(f), x)[1](1.0),
}


@pytest.mark.slow("vjp")
@pytest.mark.parametrize("name", CALLS)
def test_a_second_call_compiles_nothing_and_a_changed_number_is_seen(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, own = CALLS[name], 1.0 + list(CALLS).index(name) / 8
    assert_slopes(run(walk, 1.0), slope(1.0))

    def again() -> None:
        for x in (2.0, 3.0, 1.5):
            # A function defined anew, as inside another one, is the same program.
            assert_slopes([run(walk, x), run(lambda x: walk(x), x)], slope(x))

    def another() -> None:
        assert_slopes(run(lambda x: own * walk(x), 2.0), own * slope(2.0))

    assert compilations(again) == 0
    # Another program is seen to be one.
    assert compilations(another) > 0
    # A new wrapper traces the function again, and `checkpointed` at every call.
    for value in (3.0, 1.0):
        monkeypatch.setattr(HERE, "scale", value)
        assert_slopes(run(walk, 2.0), slope(2.0))


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


@jax.custom_jvp
def told(x: Any) -> Any:
    """One that is told which tangents are zero may do anything with that."""
    return 1.5 * x


told.defjvp(lambda p, t: (1.5 * p[0], scale * 1.5 * t[0]), symbolic_zeros=True)


@pytest.mark.parametrize(
    "ruled",
    [
        pytest.param(by_jvp, id="jvp", marks=pytest.mark.slow),
        pytest.param(by_vjp, id="vjp", marks=pytest.mark.slow),
        pytest.param(told, id="one that cannot be told"),
    ],
)
def test_a_rule_is_known_again_by_what_it_does(
    ruled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that changed is seen; one that did not is not compiled again."""
    run = lambda x: halting(lambda v: ruled(jax.nn.relu(v)), x)  # noqa: E731
    kept = retape.jax.checkpointed(run, plan=PLAN)

    def ask() -> None:
        assert_slopes(retape.jax.grad(run, plan=PLAN)(4.0), (scale * 1.5) ** 2)
        if ruled is not told:
            assert_slopes(jax.grad(kept)(4.0), (scale * 1.5) ** 2)

    seen: list[int] = []
    for value in (1.0, 2.0, 1.0, 2.0):
        monkeypatch.setattr(HERE, "scale", value)
        seen.append(compilations(ask))
    # With rules of the new kind (`jax_custom_jvp3`) it is made at each call.
    if ruled is not told and not made_anew():
        assert seen[1] > 0 and seen[2:] == [0, 0]


def made_anew() -> bool:
    config: Any = jax.config
    flags = ("jax_custom_jvp3", "jax_custom_vjp3")
    return any(getattr(config, flag, False) for flag in flags)


@pytest.mark.slow
def test_inside_jit_rules_are_not_traced_to_be_told() -> None:
    """What is traced once in all need not be found again; it is right all the same."""
    traced: list[Any] = []

    @jax.custom_jvp
    def ruled(x: Any) -> Any:
        return 1.5 * x

    @ruled.defjvp
    def _(point: Any, way: Any) -> Any:
        traced.append(point)
        return ruled(*point), 1.5 * way[0]

    def calls(gradient: Any) -> int:
        retape.jax.clear_caches()
        traced.clear()
        assert gradient(4.0) == 1.5**2
        return len(traced)

    for name in ("grad", "jax.grad"):
        run = lambda x, call=CALLS[name]: call(lambda x: halting(ruled, x), x)  # noqa: E731
        assert calls(jax.jit(run)) < calls(run)


def test_constants_are_not_part_of_the_program() -> None:
    """Arrays that a function closes over may change without compiling anything."""

    def ask(value: float) -> None:
        weights = np.full(3, value, np.float32)
        got = retape.jax.grad(lambda x: jnp.sum(weights * walk(x)), plan=PLAN)(2.0)
        assert_slopes(got, 3 * value * slope(2.0))

    ask(1.0)
    assert compilations(lambda: list(map(ask, (2.0, 5.0)))) == 0


@pytest.mark.slow("int64-False")
@pytest.mark.parametrize(
    ("dtype", "wide"), [(np.int64, False), (np.float64, False), (bool, True)]
)
def test_arrays_of_numpy_are_constants(dtype: Any, wide: bool) -> None:
    """JAX narrows them where 64 bits are off."""
    weights = np.arange(1, 4).astype(dtype)
    with jax.enable_x64(wide):
        plain = jax.grad(lambda x: jnp.sum(weights * x * x))(2.0)
        got = retape.jax.grad(lambda x: jnp.sum(weights * x * x), plan=PLAN)(2.0)
        assert got.dtype == plain.dtype and got == plain
        looped = retape.jax.grad(lambda x: jnp.sum(weights * walk(x)), plan=PLAN)(2.0)
        assert_slopes(looped, weights.sum() * slope(2.0))


def test_what_is_remembered_can_be_forgotten() -> None:
    traced: list[Any] = []

    def run(x: Any) -> Any:
        traced.append(x)
        return walk(x)

    def ask(gradient: Any) -> int:
        traced.clear()
        assert_slopes(gradient(3.0), slope(3.0))
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


# Debugging: that what is no number is found is in `judges/jax/test_settings.py` -------

POINT = np.linspace(1.0, 2.0, 5, dtype=np.float32)


def loss(x: Any) -> Any:
    return jnp.sum(halting(lambda v: v * 1.5, x))


DEBUGGED = {name: CALLS[name] for name in ("grad", "jax.grad", "vmap", "host")} | {
    "vjp": lambda f, x: retape.jax.vjp(f, x, plan=PLAN)[1](np.float32(1.0))[0],
    "measure": lambda f, x: retape.jax.measure(f, x, plan=PLAN).gradient,
    "budget": lambda f, x: retape.jax.grad(f, plan=retape.within(10_000))(x),
    "jit": lambda f, x: jax.grad(jax.jit(retape.jax.checkpointed(f)))(x),
}
MODES = {"disable_jit": jax.disable_jit, "debug_nans": lambda: jax.debug_nans(True)}


OFTEN = [("grad", "disable_jit"), ("host", "debug_nans"), ("jit", "debug_nans")]


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(*cell, marks=() if cell in OFTEN else pytest.mark.slow)
        for cell in itertools.product(DEBUGGED, MODES)
    ],
)
def test_a_mode_for_debugging_changes_nothing(name: str, mode: str) -> None:
    """`jax.disable_jit` runs loops in Python; a sweep is compiled nevertheless."""
    retape.jax.clear_caches()
    with MODES[mode]():
        got = DEBUGGED[name](loss, POINT)
        with ThreadPoolExecutor(1) as pool:
            elsewhere = pool.submit(DEBUGGED[name], loss, POINT).result()
    assert np.array_equal(got, np.full(5, 1.5**4, np.float32))
    assert np.array_equal(elsewhere, got)

"""What is compiled once: calls outside of `jit`, by any wrapper of a function."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape
import retape.jax
from retape.engines.jaxpr import _cached
from retape.engines.jaxpr._lower import _jitted
from retape.engines.jaxpr._primitives import sweep_program

PLAN = retape.fixed_space(snapshots=3)
scale = 1.0


def walk(x: Any) -> Any:
    """The derivative is 1.5 to the number of steps, times what `scale` is."""
    return scale * lax.while_loop(lambda v: v < 9.0, lambda v: 1.5 * v, x)


def slope(x: float) -> float:
    return scale * 1.5 ** np.ceil(np.log(9.0 / x) / np.log(1.5))


def work() -> int:
    """How many programs have been compiled, or made into sweeps, so far."""
    sweeps, calls = sweep_program.cache_info(), _jitted.cache_info()
    return sweeps.misses + calls.misses + compiled


compiled = 0


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count what is compiled for wrappers, from an empty memory."""
    real, jit = _cached.jax, jax.jit

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def jit(self, *args: Any) -> Any:
            global compiled
            compiled += 1
            return jit(*args)

    monkeypatch.setattr(_cached, "_executables", type(_cached._executables)())
    monkeypatch.setattr(_cached, "jax", Counting())


CALLS = {
    "grad": lambda f, x: retape.jax.grad(f, plan=PLAN)(x),
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
    before = work()
    for x in (2.0, 3.0, 1.5):
        # A function defined anew, as inside another one, is the same program.
        found = [run(walk, x), run(lambda x: walk(x), x)]
        np.testing.assert_allclose(found, slope(x), rtol=1e-6)
    assert work() == before
    # Another program is seen to be one.
    other = run(lambda x: own * walk(x), 2.0)
    np.testing.assert_allclose(other, own * slope(2.0), rtol=1e-6)
    assert work() > before


@pytest.mark.parametrize("name", CALLS)
def test_a_changed_number_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new wrapper traces the function again, and `checkpointed` at every call."""
    run, here = CALLS[name], __import__("sys").modules[__name__]
    for value in (1.0, 3.0, 1.0):
        monkeypatch.setattr(here, "scale", value)
        np.testing.assert_allclose(run(walk, 2.0), slope(2.0), rtol=1e-6)


def test_constants_are_not_part_of_the_program() -> None:
    """Arrays that a function closes over may change without compiling anything."""
    before = None
    for value in (1.0, 2.0, 5.0):
        weights = jnp.full(3, value)
        got = retape.jax.grad(lambda x, w=weights: jnp.sum(w * walk(x)), plan=PLAN)(2.0)
        np.testing.assert_allclose(got, 3 * value * slope(2.0), rtol=1e-6)
        assert before is None or work() == before
        before = work()


def test_settings_are_seen() -> None:
    gradient = retape.jax.grad(lambda x: walk(x) * jnp.zeros(()) + x, plan=PLAN)
    x = np.float32(2.0)
    types = []
    for wide in (False, True, False):
        with jax.enable_x64(wide):
            types.append(gradient(jnp.asarray(x, float)).dtype)
    assert types == [np.float32, np.float64, np.float32]


def test_few_executables_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cached, "_MOST", 2)
    for n in range(2, 6):
        total = retape.jax.grad(lambda x: jnp.sum(walk(x[0]) * x), plan=PLAN)
        assert total(jnp.ones(n)).shape == (n,)
    assert len(_cached._executables) == 2

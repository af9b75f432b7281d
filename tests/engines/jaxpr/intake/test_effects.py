"""Side effects happen once and in order, or are refused with the user's line.

What a plain run of the function does is the expectation, event by event.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

import retape
import retape.jax
from tests.engines.jaxpr.support.programs import assert_close

PLAN = retape.fixed_space(snapshots=2, stage=1)
"""Steps are run again and again."""
events: list[float] = []


@pytest.fixture(autouse=True)
def no_events() -> None:
    events.clear()


def note(value: Any) -> None:
    events.append(float(value))


ACTS: dict[str, Callable[[Any], Any]] = {
    "debug.callback": lambda v: jax.debug.callback(note, v),
    "debug.callback in order": lambda v: jax.debug.callback(note, v, ordered=True),
    "io_callback": lambda v: io_callback(note, None, v),
    "io_callback in order": lambda v: io_callback(note, None, v, ordered=True),
}


def telling(act: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Seven steps, each of which acts."""

    def body(c: Any) -> Any:
        act(c[1])
        return c[0] + 1, jnp.sin(c[1]) * 1.3

    return lambda x: lax.while_loop(going, body, (0, x))[1]


def going(c: Any) -> Any:
    """A test whose trip count cannot be proved: seven."""
    return (c[0] < 7) & (c[1] < 5.0)


def silent(x: Any) -> Any:
    return lax.fori_loop(0, 7, lambda i, v: jnp.sin(v) * 1.3, x)


WAYS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "grad": lambda f: retape.jax.grad(f, plan=PLAN),
    "jit of grad": lambda f: jax.jit(retape.jax.grad(f, plan=PLAN)),
    "jax.grad": lambda f: jax.grad(retape.jax.checkpointed(f, plan=PLAN)),
}


CASES = [("grad", act) for act in ACTS] + [
    (way, "debug.callback in order") for way in WAYS if way != "grad"
]


@pytest.mark.parametrize(("way", "act"), CASES)
def test_effects_happen_once_as_in_a_plain_run(way: str, act: str) -> None:
    loud = telling(ACTS[act])
    jax.block_until_ready(jax.jit(loud)(0.7))
    jax.effects_barrier()
    expected = list(events)
    assert len(expected) == 7
    events.clear()
    slope = WAYS[way](loud)(0.7)
    jax.effects_barrier()
    assert events == expected
    assert_close(slope, jax.grad(silent)(0.7))


def test_effects_happen_once_with_a_store() -> None:
    f = telling(ACTS["io_callback in order"])
    slope = retape.jax.grad(f, plan=PLAN, store=retape.MemoryStore())(0.7)
    jax.effects_barrier()
    assert len(events) == 7
    assert_close(slope, jax.grad(silent)(0.7))


def test_effects_happen_once_for_each_lane() -> None:
    f = retape.jax.checkpointed(telling(ACTS["debug.callback"]), plan=PLAN)
    jax.vmap(jax.grad(f))(jnp.asarray([0.7, 0.9]))
    jax.effects_barrier()
    assert len(events) == 14


def test_what_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    f = telling(lambda v: jax.debug.print("{:.3f}", v, ordered=True))
    retape.jax.grad(f, plan=PLAN)(0.7)
    jax.effects_barrier()
    values = [0.7]
    for _ in range(6):
        values.append(float(np.sin(values[-1]) * 1.3))
    assert capfd.readouterr().out.split() == [f"{v:.3f}" for v in values]


def test_effects_in_a_branch_and_a_scan() -> None:
    def f(x: Any) -> Any:
        def body(v: Any, _: Any) -> Any:
            act = lambda u: ACTS["io_callback"](u) or u * 0.5  # noqa: E731
            return lax.cond(v > 0.6, act, jnp.sin, v) * 1.4, None

        return lax.scan(body, x, None, length=6)[0]

    jax.jit(f)(0.7)
    jax.effects_barrier()
    expected = list(events)
    events.clear()
    retape.jax.grad(f, plan=PLAN)(0.7)
    jax.effects_barrier()
    assert events == expected
    assert 0 < len(expected) < 6


# References ---------------------------------------------------------------------------


def with_reference(steps: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        total = jax.new_ref(jnp.zeros_like(x))

        def step(v: Any) -> Any:
            total[...] += v**2
            total[0] = total[1] * v[2]
            return jnp.sin(v) * 1.3

        return jnp.sum(steps(step, x) * jax.freeze(total))

    return f


def counted(step: Any, x: Any) -> Any:
    return lax.fori_loop(0, 6, lambda i, v: step(v), x)


def unknown(step: Any, x: Any) -> Any:
    turn = lambda c: (c[0] + 1, step(c[1]))  # noqa: E731
    return lax.while_loop(lambda c: (c[0] < 6) & (c[1][0] < 5), turn, (0, x))[1]


@pytest.mark.parametrize("steps", [counted, unknown])
@pytest.mark.usefixtures("opened")
def test_references_made_inside(steps: Any) -> None:
    x = jnp.asarray([0.3, 0.5, 0.9])
    want = jax.grad(with_reference(counted))(x)
    assert_close(retape.jax.grad(with_reference(steps), plan=PLAN)(x), want)


# What is refused ----------------------------------------------------------------------


def here(function: Any, offset: int) -> str:
    line = function.__code__.co_firstlineno + offset
    return re.escape(f"{os.path.basename(__file__)}:{line}")


def test_an_effect_whose_result_is_used_is_refused() -> None:
    def body(v: Any) -> Any:
        return io_callback(np.sin, jax.ShapeDtypeStruct((), v.dtype), v) * 6

    def f(x: Any) -> Any:
        return lax.while_loop(lambda v: v < 5, body, x)

    expected = (
        f"`io_callback` at .*{here(body, 1)}.*`IO`.*result the program uses.*"
        "`jax.pure_callback` if"
    )
    with pytest.raises(retape.UnsupportedError, match=expected):
        retape.jax.grad(f)(1.0)
    with pytest.raises(retape.UnsupportedError, match=expected):
        retape.jax.checkpointed(f)(1.0)


def test_a_reference_from_outside_is_refused() -> None:
    total = jax.new_ref(jnp.zeros(()))

    def body(v: Any) -> Any:
        total[...] += v
        return v * 1.5

    def f(x: Any) -> Any:
        return lax.while_loop(lambda v: v < 5, body, x)

    expected = f"at .*{here(f, 1)}.*made outside the function.*inside the function"
    with pytest.raises(retape.UnsupportedError, match=expected):
        retape.jax.grad(f)(1.0)


def test_an_effect_in_a_derivative_rule_is_refused() -> None:
    @jax.custom_vjp
    def loud(x: Any) -> Any:
        return jnp.sin(x)

    def forwards(x: Any) -> Any:
        jax.debug.print("{}", x)
        return jnp.sin(x), x

    loud.defvjp(forwards, lambda x, d: (d * jnp.cos(x),))

    def f(x: Any) -> Any:
        return lax.while_loop(lambda v: v > 0.5, lambda v: loud(v) * 0.9, x)

    expected = f"`debug_print` at .*{here(f, 1)}.*derivative rule"
    with pytest.raises(retape.UnsupportedError, match=expected):
        retape.jax.grad(f)(1.0)

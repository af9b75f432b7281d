"""What a loop asks before a step, on a GPU: of many steps at once, of none beyond.

A GPU's host waits where a loop may end. So the device's form finds out beforehand how
many of the next steps will be made, and asks for all of them in one go, where the
answer follows from the number of the step. Here are all kinds of questions, with the
same answer: JAX's own loop is the oracle, in forward mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import retape.jax

pytestmark = pytest.mark.usefixtures("double_precision")

STEPS = 6
Question = Callable[[Any], Any]
QUESTIONS: dict[str, Question] = {}
CALLED: list[int] = []


def question(fun: Question) -> Question:
    QUESTIONS[fun.__name__.replace("_", " ")] = fun
    return fun


@question
def compared(i: Any) -> Any:
    return i < STEPS


@question
def a_remainder(i: Any) -> Any:
    return (i * 7) % 43 != (STEPS * 7) % 43


@question
def a_call(i: Any) -> Any:
    return jax.jit(lambda i: i < STEPS)(i)


@question
def a_row(i: Any) -> Any:
    return jnp.arange(STEPS + 1)[i] < STEPS


@question
def a_custom_jvp(i: Any) -> Any:
    return jax.nn.relu(jnp.float64(STEPS) - i) > 0


@question
def a_branch(i: Any) -> Any:
    return lax.cond(i % 2 == 0, lambda i: i < STEPS, lambda i: ~(i >= STEPS), i)


@question
def any_lane(i: Any) -> Any:
    return eqxi.unvmap_any(i < STEPS)


@question
def all_lanes(i: Any) -> Any:
    return eqxi.unvmap_all(i < STEPS)


@question
def the_same_in_lanes(i: Any) -> Any:
    return eqxi.nonbatchable(i < STEPS)


@jax.custom_batching.custom_vmap
def _below(i: Any) -> Any:
    return i < STEPS


@_below.def_vmap
def _any_below(size: int, batched: Any, i: Any) -> Any:
    del batched
    return jnp.broadcast_to(jnp.any(i < STEPS), (size,)), True


@question
def a_rule_of_vmap(i: Any) -> Any:
    return _below(i)


@question
def a_loop_that_ends_for_these_alone(i: Any) -> Any:
    return lax.while_loop(lambda k: k != STEPS, lambda k: k + 1, i) != i


@question
def the_host(i: Any) -> Any:
    def answer(i: Any) -> Any:
        CALLED.append(int(i))
        return np.asarray(i < STEPS)

    truth = jax.ShapeDtypeStruct((), bool)
    return jax.pure_callback(answer, truth, i, vmap_method="sequential")


def loop(asked: Question) -> Callable[[Any, Any], Any]:
    step = lambda c: (c[0] + 1, jnp.sin(c[1]) * 1.2)  # noqa: E731
    going = lambda c: asked(c[0]) & (c[0] < 50)  # noqa: E731
    return lambda x, i: lax.while_loop(going, step, (i, x))[1]


OFTEN = ("any lane", "the host")
"""Reversed on each change, the others each night; all are asked for a value."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(q, marks=() if q in OFTEN else pytest.mark.slow) for q in QUESTIONS],
)
def test_as_many_steps_are_made(name: str) -> None:
    fun, x, i = loop(QUESTIONS[name]), jnp.asarray(0.7), jnp.asarray(1)
    want = jax.jvp(lambda x: fun(x, i), (x,), (jnp.ones(()),))
    CALLED.clear()
    found = retape.jax.value_and_grad(fun, loops="device")(x, i)
    np.testing.assert_allclose(found, want, rtol=1e-12)
    assert max(CALLED, default=STEPS) == STEPS


@pytest.mark.parametrize("name", QUESTIONS)
def test_as_many_are_made_for_a_value_alone(name: str) -> None:
    fun, x, i = loop(QUESTIONS[name]), jnp.asarray(0.7), jnp.asarray(1)
    want = fun(x, i)
    CALLED.clear()
    value = retape.jax.checkpointed(fun, loops="device")(x, i)
    np.testing.assert_allclose(value, want, rtol=1e-12)
    assert max(CALLED, default=STEPS) == STEPS


def test_the_oracle_sees_a_step_too_many() -> None:
    x, i = jnp.asarray(0.7), jnp.asarray(1)
    ends = [float(loop(lambda i, n=n: i < n)(x, i)) for n in (STEPS, STEPS + 1)]
    assert abs(ends[0] - ends[1]) > 1e-3

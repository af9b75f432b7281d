"""Random small programs: nests of loops and branches against forward mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import retape
import retape.jax
from tests.engines.jaxpr.support.programs import (
    Unrolled,
    assert_close,
    forward_gradient,
)

SIZE = 3
index = st.integers(0, SIZE - 1)
simple = st.one_of(
    st.tuples(st.sampled_from(["sin", "square", "shift", "forget"]), index),
    st.tuples(st.sampled_from(["mul", "swap", "max"]), index, index),
)


def nest(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    body = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.just("while"), st.integers(0, 4), body),
        st.tuples(st.just("grow"), index, body),
        st.tuples(st.just("scan"), st.integers(0, 4), st.booleans(), body),
        st.tuples(st.just("cond"), index, body, body),
        st.tuples(st.just("switch"), st.integers(-1, 3), body, body, body),
    )


programs = st.lists(st.recursive(simple, nest, max_leaves=6), min_size=1, max_size=3)
plans = st.builds(
    retape.fixed_space,
    snapshots=st.sampled_from([1, 2, 3, 7]),
    stage=st.sampled_from([1, 2, 5]),
    split=st.sampled_from(["binomial", "bisection"]),
)
State = tuple[Any, ...]


def put(state: State, i: int, value: Any) -> State:
    return (*state[:i], value, *state[i + 1 :])


def run(loops: Any, code: Any, state: State, x: Any) -> State:
    """Interpret a program; every value stays bounded so that gradients do too."""
    for statement in code:
        state = step(loops, statement, state, x)
    return state


SIMPLE: dict[str, Callable[..., Any]] = {
    "sin": lambda state, x, i: jnp.sin(state[i] + x),
    "square": lambda state, x, i: 0.3 * state[i] ** 2 - 0.5,
    "shift": lambda state, x, i: 0.9 * state[i] + 0.1 * x,
    "forget": lambda state, x, i: jnp.asarray(0.25),
    "mul": lambda state, x, i, j: jnp.tanh(state[i] * state[j]),
    "max": lambda state, x, i, j: jnp.maximum(state[i], 0.5 * state[j]),
}


def step(loops: Any, statement: Any, state: State, x: Any) -> State:
    name, *places = statement
    if name not in SIMPLE:
        return compound(loops, statement, state, x)
    return put(state, places[0], SIMPLE[name](state, x, *places))


def compound(loops: Any, statement: Any, state: State, x: Any) -> State:
    def then(code: Any) -> Callable[[State], State]:
        return lambda inner: run(loops, code, inner, x)

    match statement:
        case ("swap", i, j):
            return put(put(state, i, state[j]), j, state[i])
        case ("while", n, body):
            return loops.while_loop(
                lambda c: c[1] < n, lambda c: (then(body)(c[0]), c[1] + 1), (state, 0)
            )[0]
        case ("grow", i, body):
            # How often it runs depends on the data.
            return loops.while_loop(
                lambda c: (c[0][i] < 0.4) & (c[1] < 5),
                lambda c: (then(body)(c[0]), c[1] + 1),
                (state, 0),
            )[0]
        case ("scan", n, reverse, body):
            xs = jnp.linspace(0.1, 0.5, n) * x

            def turn(inner: State, row: Any) -> tuple[State, Any]:
                after = then(body)(put(inner, 0, inner[0] * 0.8 + row))
                return after, after[1] * inner[0]

            state, ys = loops.scan(turn, state, xs, reverse=reverse)
            return put(state, 2, jnp.tanh(state[2] + jnp.sum(ys * xs)))
        case ("cond", i, yes, no):
            return loops.cond(state[i] > 0.2, then(yes), then(no), state)
        case ("switch", i, *arms):
            which = i + (state[0] > 10.0).astype(int)
            return loops.switch(which, [then(a) for a in arms], state)
        case _:
            raise AssertionError(statement)


def program(loops: Any, code: Any) -> Callable[[Any], Any]:
    def fun(x: Any) -> Any:
        start = (jnp.sin(x), x * 0.5, jnp.asarray(0.3))
        return sum((i + 1.0) * v for i, v in enumerate(run(loops, code, start, x)))

    return fun


@settings(
    max_examples=14,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(code=programs, plan=plans)
@pytest.mark.slow
def test_gradient_equals_forward_mode(opened: None, code: Any, plan: Any) -> None:
    del opened
    x = jnp.asarray(0.37)
    fun = program(jax.lax, code)
    value, gradient = retape.jax.value_and_grad(fun, plan=plan)(x)
    assert_close(value, jax.jit(fun)(x))
    assert_close(gradient, forward_gradient(fun, x), 1e-8)


def test_the_two_ways_of_running_agree() -> None:
    """The oracle itself: forward mode of the program against its unrolled form."""
    code = [
        ("while", 3, [("sin", 0), ("scan", 2, True, [("mul", 1, 0)])]),
        ("grow", 2, [("shift", 2), ("cond", 0, [("square", 1)], [("swap", 0, 1)])]),
        ("switch", 3, [("sin", 0)], [("sin", 1)], [("max", 0, 1)]),
    ]
    x = jnp.asarray(0.37)
    got = forward_gradient(program(jax.lax, code), x)
    assert_close(got, jax.grad(program(Unrolled, code))(x))
    assert not np.isclose(got, 0.0)

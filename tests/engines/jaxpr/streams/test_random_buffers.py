"""Random programs that fill a buffer: it is kept once only if none of it is read.

A program is a loop over statements that move indices on, set rows (some of them under
a condition), and now and then read a row or go through an inner loop. It is run three
ways: by JAX, unrolled as straight-line code, and on numbers with a buffer that keeps a
record of what is done to it. If the engine keeps the buffer once, the record must
show no row set twice and none read; and the gradient must be right in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import retape
import retape.jax
from tests.engines.jaxpr.support import seams
from tests.engines.jaxpr.support.programs import Unrolled, assert_close

ROWS = 7
names = st.sampled_from(["i", "i", "j"])
truths = st.sampled_from(["always", "always", "p", "not p", "p and q"])
shifts = st.sampled_from([0, 0, 0, 1, -1])
ways = st.sampled_from(["where", "row", "drop"])
simple = st.one_of(
    st.tuples(st.just("set"), names, shifts, truths, ways),
    st.tuples(st.just("set"), names, shifts, truths, ways),
    st.tuples(st.just("grow"), names, st.sampled_from([1, 1, 2, 0, -1]), truths),
    st.tuples(st.just("grow"), st.just("i"), st.just(1), truths),
    st.tuples(st.just("tie"), names, names),
    st.tuples(st.just("move")),
)
seldom = st.tuples(st.just("read"), names, shifts)
statements = st.one_of(*[simple] * 9, seldom)
inner = st.tuples(st.just("loop"), st.lists(statements, min_size=1, max_size=3))
bodies = st.lists(st.one_of(*[statements] * 5, inner), min_size=2, max_size=5)
starts = st.sampled_from([0, 0, 1, 3, -1])


@dataclass
class Record:
    """A buffer of one column that remembers what was done to it."""

    rows: np.ndarray = field(default_factory=lambda: np.full(ROWS, 0.5))
    written: list[int] = field(default_factory=list)
    read: list[int] = field(default_factory=list)


def to_row(b: Any, at: Any, value: Any, truth: Any, way: str) -> Any:
    """The buffer with a row set, if it is true."""
    if isinstance(b, Record):
        row = int(at) + ROWS if at < 0 else int(at)
        if truth and 0 <= row < ROWS:
            b.rows[row] = value
            b.written.append(row)
        return b
    if way == "where":
        return jnp.where(truth, b.at[at].set(value), b)
    if way == "row":
        # Where it is outside, neither is seen.
        return b.at[at].set(jnp.where(truth, value, b[at]))
    return b.at[jnp.where(truth, at, ROWS)].set(value, mode="drop")


def from_row(b: Any, at: Any) -> Any:
    if isinstance(b, Record):
        row = min(max(int(at) + ROWS if at < 0 else int(at), 0), ROWS - 1)
        b.read.append(row)
        return b.rows[row]
    return b[at]


def numbers(state: dict[str, Any]) -> Any:
    """NumPy or JAX, whichever the buffer belongs to."""
    return np if isinstance(state["b"], Record) else jnp


def truth_of(asked: str, state: dict[str, Any]) -> Any:
    p, q = state["v"] > 0.3, state["n"] % 3 != 1
    no = numbers(state).logical_not(p)
    return {"always": True, "p": p, "not p": no, "p and q": p & q}[asked]


def step(loops: Any, statement: Any, state: dict[str, Any], x: Any) -> dict[str, Any]:
    match statement:
        case ("set", name, shift, asked, way):
            at, truth = state[name] + shift, truth_of(asked, state)
            b = to_row(state["b"], at, state["v"] * x, truth, way)
            return state | {"b": b}
        case ("grow", name, amount, asked):
            more = numbers(state).where(truth_of(asked, state), amount, 0)
            return state | {name: state[name] + more}
        case ("tie", name, other):
            return state | {name: state[other]}
        case ("read", name, shift):
            return state | {"v": 0.9 * state["v"] + from_row(state["b"], state[name])}
        case ("move",):
            return state | {"v": moved(state, x)}
        case ("loop", body):
            # How often it goes round depends on the data.
            def turn(state: dict[str, Any]) -> dict[str, Any]:
                return run(loops, body, state, x) | {"m": 0.5 * state["m"]}

            def on(state: dict[str, Any]) -> Any:
                return (state["m"] > 0.3) & (state["v"] > 0.1)

            found = loops.while_loop(on, turn, state | {"m": x * 0 + 1.0})
            return {k: v for k, v in found.items() if k != "m"}
        case _:
            raise AssertionError(statement)


def moved(state: dict[str, Any], x: Any) -> Any:
    return numbers(state).sin(2.5 * state["v"]) * 0.9 + 0.1 * x


def run(loops: Any, code: Any, state: dict[str, Any], x: Any) -> dict[str, Any]:
    for statement in code:
        state = step(loops, statement, state, x)
    return state


def filled(loops: Any, code: Any, start: int, buffer: Any, x: Any) -> dict[str, Any]:
    def turn(state: dict[str, Any]) -> dict[str, Any]:
        after = run(loops, code, state, x)
        return after | {
            "n": after["n"] + 1,
            "w": 0.5 * after["w"],
            "v": moved(after, x),
        }

    def on(state: dict[str, Any]) -> Any:
        # Not a count: a loop of few trips would be laid out.
        return (state["w"] > 0.05) & (state["v"] < 0.98)

    begun = {"i": start, "j": start, "n": 0, "w": x * 0 + 1.0, "v": x, "b": buffer}
    return loops.while_loop(on, turn, begun)


def program(loops: Any, code: Any, start: int) -> Callable[[Any], Any]:
    def fun(x: Any) -> Any:
        state = filled(loops, code, start, jnp.full(ROWS, 0.5), x)
        return jnp.sum(state["b"] ** 2 * jnp.arange(1.0, ROWS + 1)) + state["v"]

    return fun


def kept_once(code: Any, start: int) -> bool:
    """Whether no snapshot holds the buffer."""
    fun = program(jax.lax, code, start)
    layout = seams.compiled(fun, jnp.asarray(0.4), grain=seams.GRAIN).layout
    return (ROWS,) not in [layout.avals[p].shape for p in layout.places("register")]


def lies(code: Any, start: int) -> list[str]:
    """What a run does that a buffer kept once does not allow."""
    found: list[str] = []
    for x in (0.2, 0.45, 0.8):
        record = Record()
        filled(Unrolled, code, start, record, np.float64(x))
        rows = record.written
        found += ["a row is read"] * (bool(record.read) and bool(rows))
    return found


few = settings(
    deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.slow
@settings(few, max_examples=40)
@given(code=bodies, start=starts)
def test_what_is_proved_is_so(code: Any, start: int) -> None:
    if kept_once(code, start):
        assert lies(code, start) == []


def test_the_record_catches_a_lie() -> None:
    """If a buffer that is read were kept once, the test above would fail."""
    code = [("set", "i", 0, "always", "where"), ("read", "i", 0)]
    assert not kept_once(code, 0)
    assert "a row is read" in lies(code, 0)


PROVED = {
    "forth and back, under conditions": [
        ("set", "i", 0, "p", "drop"),
        ("set", "j", 1, "not p", "where"),
        ("grow", "j", -1, "p and q"),
        ("grow", "i", 2, "p"),
    ],
    "in a loop inside": [
        ("loop", [("set", "i", 0, "always", "where"), ("grow", "i", 1, "always")])
    ],
    "inside, under a condition, and outside": [
        ("loop", [("set", "i", 0, "p", "where"), ("grow", "i", 1, "p")]),
        ("set", "i", 0, "always", "row"),
        ("move",),
        ("grow", "i", 1, "always"),
    ],
    "moved on in the loop inside": [
        ("set", "i", 0, "always", "where"),
        ("grow", "i", 1, "always"),
        ("loop", [("grow", "i", 1, "p")]),
    ],
}


@pytest.mark.slow("inside, under a condition, and outside", "in a loop inside")
@pytest.mark.parametrize("name", PROVED)
def test_a_buffer_is_kept_once_in(name: str) -> None:
    code = PROVED[name]
    assert kept_once(code, 0)
    assert lies(code, 0) == []
    assert_close(*both(code, 0, retape.fixed_space(snapshots=2, stage=2)))


def both(code: Any, start: int, plan: Any) -> tuple[Any, Any]:
    """Value and gradient, and those of the unrolled program."""
    x = jnp.asarray(0.45)
    found = retape.jax.value_and_grad(program(jax.lax, code, start), plan=plan)
    wanted = jax.value_and_grad(program(Unrolled, code, start))
    return jax.jit(found)(x), wanted(x)


plans = st.builds(
    retape.fixed_space,
    snapshots=st.sampled_from([1, 2, 3]),
    stage=st.sampled_from([1, 2, 5]),
)


@pytest.mark.slow
@settings(few, max_examples=4)
@given(code=bodies, start=starts, plan=plans)
def test_gradients_are_right(code: Any, start: int, plan: Any) -> None:
    assert_close(*both(code, start, plan))

"""Loops whose trip count is proved, against running them in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend import core
from jax.interpreters import ad, mlir

import retape
import retape.jax
from retape.engines.jaxpr._pipeline import compile_program
from retape.engines.jaxpr.analysis._opaque_primitives import passed_through
from retape.engines.jaxpr.analysis._range_analysis import Known
from retape.engines.jaxpr.analysis._trip_count import UNBOUNDED, Trips, trip_bounds
from retape.engines.jaxpr.jaxprs._jax_internals import jaxprs_in_params
from retape.engines.jaxpr.jaxprs._subprogram import closed
from retape.engines.jaxpr.lower._while_to_scan import Limits, while_to_scan
from tests.engines.jaxpr.support.programs import Unrolled, assert_close

FEW = retape.fixed_space(snapshots=2, stage=2)


def whiles(jaxpr: Any) -> list[Any]:
    """All `while`s of a jaxpr, however deep."""
    found = [e for e in jaxpr.eqns if e.primitive.name == "while"]
    for eqn in jaxpr.eqns:
        for inner in jaxprs_in_params(eqn.params):
            found += whiles(closed(inner).jaxpr)
    return found


def proved(test: Callable[..., Any], body: Callable[..., Any], carry: Any) -> Trips:
    """What is proved of a loop whose start is written in the program."""
    jaxpr = jax.make_jaxpr(lambda: jax.lax.while_loop(test, body, carry))()
    known = Known(jaxpr, [])
    for eqn in jaxpr.jaxpr.eqns:
        if eqn.primitive.name == "while":
            return trip_bounds(eqn, [known.read(a) for a in eqn.invars])
        known.learn(eqn)
    raise AssertionError("no loop was traced")


def counted(test: Any, body: Any, carry: Any, most: int = 1000) -> int:
    """How often the loop really runs."""
    n = 0
    while bool(test(carry)) and n < most:
        carry, n = body(carry), n + 1
    return n


# What is proved -----------------------------------------------------------------------


@given(
    start=st.integers(-20, 20),
    step=st.integers(-4, 4),
    limit=st.integers(-20, 20),
    shift=st.integers(-3, 3),
    how=st.sampled_from(["<", "<=", ">", ">=", "not <", "flipped <"]),
)
@settings(max_examples=60, deadline=None)
def test_proved_counts_are_those_of_running_it(
    start: int, step: int, limit: int, shift: int, how: str
) -> None:
    def test(c: Any) -> Any:
        v = c + shift
        return {
            "<": lambda: v < limit,
            "<=": lambda: v <= limit,
            ">": lambda: v > limit,
            ">=": lambda: v >= limit,
            "not <": lambda: jnp.logical_not(v < limit),
            "flipped <": lambda: limit > v,
        }[how]()

    def body(c: Any) -> Any:
        return c + step

    carry = np.int32(start)
    runs = counted(test, body, carry)
    found = proved(test, body, carry)
    if found.most is None:
        # Nothing is proved of a loop that never ends, or one that never runs because
        # its counter stands or goes the other way.
        assert runs in (0, 1000)
    else:
        assert found == Trips(runs, runs)


PROVED = {
    "two counters, the lesser counts": (
        lambda c: (c[0] < 9) & (c[1] < 6),
        lambda c: (c[0] + 1, c[1] + 2),
        (0, 0),
        Trips(3, 3),
    ),
    "a test that data may end sooner": (
        lambda c: (c[0] < 9) & (c[1] > 0.5),
        lambda c: (c[0] + 1, c[1] * 0.5),
        (0, 1.0),
        Trips(0, 9),
    ),
    "a limit that the loop carries": (
        lambda c: c[0] < c[1],
        lambda c: (c[0] + 2, c[1]),
        (1, 8),
        Trips(4, 4),
    ),
    "a stride that the loop carries": (
        lambda c: c[0] < 8,
        lambda c: (c[0] + c[1], c[1]),
        (0, 3),
        Trips(3, 3),
    ),
    "a flag that stays up": (
        lambda c: (c[0] < 8) & c[1],
        lambda c: (c[0] + 1, c[1]),
        (0, True),
        Trips(8, 8),
    ),
    "through wider numbers": (
        lambda c: c[0].astype(jnp.int64) < 5,
        lambda c: (c[0] + jnp.int8(1),),
        (np.int8(0),),
        Trips(5, 5),
    ),
    "through jit, copies and a choice that is none": (
        lambda c: jax.jit(lambda i: i < 5)(jnp.array(c[0])),
        lambda c: (jnp.where(True, c[0] + 1, c[0]),),
        (0,),
        Trips(5, 5),
    ),
    "as far as eight bits go": (
        lambda c: c[0] < 127,
        lambda c: (c[0] + jnp.int8(1),),
        (np.int8(0),),
        Trips(127, 127),
    ),
    "never": (lambda c: c[0] < 0, lambda c: (c[0] + 1,), (0,), Trips(0, 0)),
}


@pytest.mark.parametrize("name", PROVED)
def test_proved(name: str) -> None:
    test, body, carry, want = PROVED[name]
    assert proved(test, body, carry) == want
    runs = counted(test, body, jax.tree.map(jnp.asarray, carry))
    assert want.least <= runs <= (want.most or 0)


REFUSED = {
    "a floating-point counter": (
        lambda c: c[0] < 1.0,
        lambda c: (c[0] + 0.1,),
        (0.0,),
    ),
    "a counter that wraps round": (
        lambda c: c[0] <= 127,
        lambda c: (c[0] + jnp.int8(1),),
        (np.int8(0),),
    ),
    "a stride over the limit and round": (
        lambda c: c[0] < 120,
        lambda c: (c[0] + jnp.int8(50),),
        (np.int8(0),),
    ),
    "a test that wraps round": (
        lambda c: c[0] + jnp.int8(100) < 120,
        lambda c: (c[0] + jnp.int8(10),),
        (np.int8(0),),
    ),
    "a sum that wraps round before it is widened": (
        lambda c: (c[0] + jnp.int8(100)).astype(jnp.int32) < 130,
        lambda c: (c[0] + jnp.int8(1),),
        (np.int8(0),),
    ),
    "a counter that data sets back": (
        lambda c: c[0] < 5,
        lambda c: (jnp.where(c[1] > 3, 0, c[0] + 1), c[1] + 1),
        (0, 0),
    ),
    "a counter that stands at times": (
        lambda c: c[0] < 5,
        lambda c: (jnp.where(c[1] % 2 == 0, c[0] + 1, c[0]), c[1] + 1),
        (0, 0),
    ),
    "a step that grows": (
        lambda c: c[0] < 50,
        lambda c: (c[0] + c[1], c[1] + 1),
        (0, 1),
    ),
    "a limit that moves": (
        lambda c: c[0] < c[1],
        lambda c: (c[0] + 1, c[1] - 1),
        (0, 9),
    ),
    "one counter or another": (
        lambda c: (c[0] < 5) | (c[1] < 7),
        lambda c: (c[0] + 1, c[1] + 1),
        (0, 0),
    ),
    "two counters that change places": (
        lambda c: c[0] < 5,
        lambda c: (c[1] + 1, c[0] + 1),
        (0, 3),
    ),
    "doubling": (lambda c: c[0] < 50, lambda c: (c[0] + c[0],), (1,)),
    "a test for a single value": (lambda c: c[0] != 5, lambda c: (c[0] + 2,), (0,)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    assert proved(*REFUSED[name]) == UNBOUNDED


def test_a_bound_that_is_only_known_when_it_runs() -> None:
    def fun(x: Any, n: Any) -> Any:
        return jax.lax.fori_loop(0, n, lambda i, v: jnp.sin(v), x)

    jaxpr = jax.make_jaxpr(fun)(0.5, 3)
    assert while_to_scan(jaxpr, [True, False], Limits(2**20)) is jaxpr


# What becomes of it -------------------------------------------------------------------


def counted_nest(loops: Any, x: Any) -> Any:
    """An inner loop of six or seven trips, as a Runge-Kutta step with one saved."""

    def step(c: Any) -> Any:
        x, first, t = c

        def stage(s: Any) -> Any:
            i, v, ks = s
            k = 0.1 * jnp.cos(v + jnp.sum(ks))
            return i + 1, v * 0.9 + k, ks.at[i].set(k)

        start = jnp.where(first, 0, 1)
        _, y, ks = loops.while_loop(lambda s: s[0] < 7, stage, (start, x, jnp.zeros(7)))
        return y + jnp.sum(ks**2), t > 4.0, t + 1.0 + y**2

    return loops.while_loop(lambda c: c[2] < 6.0, step, (x, True, 1.0))[0]


def test_a_bounded_inner_loop_stays_in_one_step() -> None:
    fun = lambda x: counted_nest(jax.lax, x)  # noqa: E731
    jaxpr = jax.make_jaxpr(fun)(0.3)
    made = while_to_scan(jaxpr, [True], Limits(2**20))
    assert len(whiles(jaxpr.jaxpr)) == 2
    assert len(whiles(made.jaxpr)) == 1
    assert len(compile_program(jaxpr, [True]).code) == 3
    value, gradient = retape.jax.value_and_grad(fun, plan=FEW)(0.3)
    assert_close(value, fun(0.3))
    assert_close(gradient, jax.jacfwd(fun)(0.3))
    unrolled = jax.grad(lambda x: counted_nest(Unrolled, x))(0.3)
    assert_close(gradient, unrolled)


def test_a_bounded_loop_that_is_dear_is_opened() -> None:
    jaxpr = jax.make_jaxpr(lambda x: counted_nest(jax.lax, x))(0.3)
    made = while_to_scan(jaxpr, [True], Limits(0))
    assert len(whiles(made.jaxpr)) == 2


def test_a_long_counted_loop_is_opened_and_its_length_known() -> None:
    def fun(x: Any) -> Any:
        return jax.lax.while_loop(
            lambda c: c[0] < 300, lambda c: (c[0] + 1, jnp.sin(c[1]) * x), (0, x)
        )[1].sum()

    x = jnp.linspace(0.5, 1.5, 700)
    explained = retape.jax.explain(fun, x, plan=FEW)
    assert explained.steps == 302
    assert_close(retape.jax.grad(fun)(x[:3]), jax.jacfwd(fun)(x[:3]))


def test_a_proof_that_lies_gives_a_wrong_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gradients above would show a count that is off by one."""
    from retape.engines.jaxpr.lower import _while_to_scan as _counted

    def fun(x: Any) -> Any:
        return jax.lax.while_loop(
            lambda c: c[0] < 5, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x)
        )[1]

    monkeypatch.setattr(_counted, "trip_bounds", lambda eqn, ins: Trips(4, 4))
    wrong = retape.jax.grad(fun)(0.71)
    assert abs(wrong - jax.jacfwd(fun)(0.71)) > 1e-3


# Primitives of others -----------------------------------------------------------------


def primitive(name: str, impl: Any, pull: Any = None) -> Any:
    """A primitive as a package would define one: linear, with its own transpose."""
    made = core.Primitive(name)
    made.def_impl(impl)
    made.def_abstract_eval(lambda x: x)
    mlir.register_lowering(made, mlir.lower_fun(impl, multiple_results=False))
    if pull is not None:
        ad.deflinear2(made, lambda ct, _: [pull(ct)])
    return made


plain_p = primitive("plain", lambda x: x, lambda ct: ct)
scaled_p = primitive("scaled", lambda x: x, lambda ct: 3.0 * ct)
stiff_p = primitive("stiff", lambda x: x)


def test_a_foreign_identity_is_seen_through() -> None:
    def test(c: Any) -> Any:
        return plain_p.bind(c[0] < 5)

    body = lambda c: (plain_p.bind(c[0]) + 1,)  # noqa: E731
    assert proved(test, body, (0,)) == Trips(5, 5)


@pytest.mark.parametrize(
    ("which", "active", "want"),
    [
        (plain_p, True, 0),
        (plain_p, False, 0),
        (scaled_p, True, None),
        (scaled_p, False, 0),
        (stiff_p, True, None),
    ],
    ids=lambda v: str(v),
)
def test_only_what_hands_its_cotangent_on_is_left_out(
    which: Any, active: bool, want: int | None
) -> None:
    (eqn,) = jax.make_jaxpr(which.bind)(1.0).jaxpr.eqns
    assert passed_through(eqn, [active]) == want


def test_a_foreign_identity_keeps_its_own_derivative() -> None:
    def fun(x: Any) -> Any:
        return jax.lax.while_loop(
            lambda v: v < 5.0, lambda v: scaled_p.bind(v * 1.5) + x, x
        )

    x, n = 0.7, 0
    value = x
    slope = 1.0
    while value < 5.0:
        value, slope, n = value * 1.5 + x, 3.0 * 1.5 * slope, n + 1
    # By hand: each trip hands on 3 * 1.5 of the cotangent, and 1 to `x`.
    want = (3.0 * 1.5) ** n + sum((3.0 * 1.5) ** k for k in range(n))
    assert_close(retape.jax.grad(fun, plan=FEW)(x), jnp.asarray(want))


def test_what_a_loop_only_copies_is_not_in_a_snapshot() -> None:
    def fun(x: Any) -> Any:
        def body(c: Any) -> Any:
            v, rest = c
            return v * 1.5 + rest[0], jnp.array(rest, copy=True)

        v, rest = jax.lax.while_loop(lambda c: c[0] < 5.0, body, (x, x * jnp.ones(99)))
        return v + jnp.sum(rest)

    layout = compile_program(jax.make_jaxpr(fun)(0.3), [True]).layout
    assert layout.capsule_bytes() == 4 + 8
    assert_close(retape.jax.grad(fun, plan=FEW)(0.3), jax.jacfwd(fun)(0.3))

"""Loops whose trip count is proved, against running them in Python."""

# ruff: noqa: E501 - a line is a loop

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
from tests.engines.jaxpr.support import seams
from tests.engines.jaxpr.support.programs import assert_close

FEW = retape.fixed_space(snapshots=2, stage=2)


def laid_out(fun: Callable[..., Any], *args: Any, grain: int = seams.GRAIN) -> Any:
    return seams.form_after("while_to_scan", fun, *args, grain=grain)


def whiles(form: Any) -> int:
    return seams.operations(form).count("while")


def trips(jaxpr: Any, sure: bool) -> int:
    """How often an exponential is taken, that in no branch or any."""
    total = 0
    for eqn in jaxpr.eqns:
        total += eqn.primitive.name == "exp"
        if not sure or eqn.primitive.name != "cond":
            inner = [getattr(j, "jaxpr", j) for j in core.jaxprs_in_params(eqn.params)]
            each = sum(trips(j, sure) for j in inner)
            total += eqn.params.get("length", 1) * each
    return total


def proved(test: Callable[..., Any], body: Callable[..., Any], carry: Any) -> Any:
    """The least and the most trips that are proved of a loop, with its start known."""

    def run(x: Any) -> Any:
        turn = lambda c: (body(c[0]), jnp.exp(c[1]))  # noqa: E731
        return jax.lax.while_loop(lambda c: test(c[0]), turn, (carry, x))[1]

    form = laid_out(run, 0.5)
    return None if whiles(form) else tuple(trips(form.jaxpr, s) for s in (True, False))


def counted(test: Any, body: Any, carry: Any, most: int = 200) -> int:
    """How often the loop really runs."""
    n = 0
    while bool(test(carry)) and n < most:
        carry, n = body(carry), n + 1
    return n


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


# What is proved -----------------------------------------------------------------------


@given(
    start=st.integers(-20, 20),
    step=st.integers(-4, 4),
    limit=st.integers(-20, 20),
    shift=st.integers(-3, 3),
    how=st.sampled_from(["<", "<=", ">", ">=", "not <", "flipped <"]),
)
@settings(max_examples=25, deadline=None)
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
    # A loop that never ends has no count.
    assert proved(test, body, carry) == (None if runs == 200 else (runs, runs))


LOOPS = """
two counters, the lesser counts; (c[0] < 9) & (c[1] < 6); c[0] + 1, c[1] + 2; 0, 0; 3 3
a test that data may end sooner; (c[0] < 9) & (c[1] > 0.5); c[0] + 1, c[1] * 0.5; 0, 1.0; 0 9
a limit that the loop carries; c[0] < c[1]; c[0] + 2, c[1]; 1, 8; 4 4
a stride that the loop carries; c[0] < 8; c[0] + c[1], c[1]; 0, 3; 3 3
a flag that stays up; (c[0] < 8) & c[1]; c[0] + 1, c[1]; 0, True; 8 8
through wider numbers; c[0].astype(jnp.int64) < 5; (c[0] + jnp.int8(1),); (np.int8(0),); 5 5
through jit, copies and a choice that is none; jax.jit(lambda i: i < 5)(jnp.array(c[0])); (jnp.where(True, c[0] + 1, c[0]),); (0,); 5 5
through another's identity; plain_p.bind(c[0] < 5); (plain_p.bind(c[0]) + 1,); (0,); 5 5
as far as eight bits go; c[0] < 127; (c[0] + jnp.int8(1),); (np.int8(0),); 127 127
never; c[0] < 0; (c[0] + 1,); (0,); 0 0
a floating-point counter; c[0] < 1.0; (c[0] + 0.1,); (0.0,); none
a counter that wraps round; c[0] <= 127; (c[0] + jnp.int8(1),); (np.int8(0),); none
a stride over the limit and round; c[0] < 120; (c[0] + jnp.int8(50),); (np.int8(0),);
a test that wraps round; c[0] + jnp.int8(100) < 120; (c[0] + jnp.int8(10),); (np.int8(0),);
a sum that wraps before it is widened; (c[0] + jnp.int8(100)).astype(jnp.int32) < 130; (c[0] + jnp.int8(1),); (np.int8(0),); none
a counter that data sets back; c[0] < 5; jnp.where(c[1] > 3, 0, c[0] + 1), c[1] + 1; 0, 0; none
a counter that stands at times; c[0] < 5; jnp.where(c[1] % 2 == 0, c[0] + 1, c[0]), c[1] + 1; 0, 0;
a step that grows; c[0] < 50; c[0] + c[1], c[1] + 1; 0, 1;
a limit that moves; c[0] < c[1]; c[0] + 1, c[1] - 1; 0, 9;
one counter or another; (c[0] < 5) | (c[1] < 7); c[0] + 1, c[1] + 1; 0, 0;
two counters that change places; c[0] < 5; c[1] + 1, c[0] + 1; 0, 3;
doubling; c[0] < 50; (c[0] + c[0],); (1,);
a test for a single value; c[0] != 5; (c[0] + 2,); (0,); none
"""
"""Name, test, next carry, first carry, and what is proved, if it is not how it runs."""


@pytest.mark.parametrize(
    "line", LOOPS.strip().splitlines(), ids=lambda line: line.partition(";")[0]
)
def test_counters_are_counted_as_they_run(line: str) -> None:
    """Round the end of their type, too; real numbers and what never ends are not."""
    _, test, body, carry, told = (part.strip() for part in line.split(";"))
    loop = [eval(f"lambda c: ({part})", globals()) for part in (test, body)]
    first = eval(carry)
    runs = counted(*loop, jax.tree.map(jnp.asarray, first))
    found = proved(*loop, first)
    if told == "none":
        assert found is None and (runs == 200 or "floating" in line)
    else:
        least, most = map(int, told.split() or (runs, runs))
        assert found == (least, most) and least <= runs <= most


def test_a_bound_that_is_only_known_when_it_runs() -> None:
    def fun(x: Any, n: Any) -> Any:
        return jax.lax.fori_loop(0, n, lambda i, v: jnp.sin(v), x)

    assert whiles(laid_out(fun, 0.5, 3)) == 1


# What becomes of it -------------------------------------------------------------------


def test_a_long_counted_loop_is_opened_and_its_length_known() -> None:
    def fun(x: Any) -> Any:
        return jax.lax.while_loop(
            lambda c: c[0] < 300, lambda c: (c[0] + 1, jnp.sin(c[1]) * x), (0, x)
        )[1].sum()

    x = jnp.linspace(0.5, 1.5, 700)
    explained = retape.jax.explain(fun, x, plan=FEW)
    assert explained.steps == 302
    assert_close(retape.jax.grad(fun)(x[:3]), jax.jacfwd(fun)(x[:3]))


def test_a_proof_that_lies_gives_a_wrong_answer() -> None:
    """The gradients above would show a count that is off by one."""

    def fun(x: Any) -> Any:
        return jax.lax.while_loop(
            lambda c: c[0] < 5, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x)
        )[1]

    def shorter(made: Any, *_: Any) -> Any:
        eqns = [
            e.replace(params=e.params | {"length": 4}) if "length" in e.params else e
            for e in made.jaxpr.eqns
        ]
        return made.replace(jaxpr=made.jaxpr.replace(eqns=eqns))

    want = jax.jacfwd(fun)(0.71)
    assert_close(retape.jax.grad(fun)(0.71), want)
    with seams.lying("while_to_scan", shorter):
        assert abs(retape.jax.grad(fun)(0.71) - want) > 1e-3


# Primitives of others -----------------------------------------------------------------


@pytest.mark.parametrize(("which", "by"), [(plain_p, 1.0), (scaled_p, 3.0)], ids=str)
def test_a_foreign_identity_keeps_its_own_derivative(which: Any, by: float) -> None:
    def fun(x: Any) -> Any:
        return jax.lax.while_loop(
            lambda v: v < 5.0, lambda v: which.bind(v * 1.5) + x, x
        )

    x, n = 0.7, 0
    value = x
    while value < 5.0:
        value, n = value * 1.5 + x, n + 1
    # By hand: each trip hands on so much of the cotangent, and 1 to `x`.
    want = (by * 1.5) ** n + sum((by * 1.5) ** k for k in range(n))
    assert_close(retape.jax.grad(fun, plan=FEW)(x), jnp.asarray(want))


def test_what_a_loop_only_copies_is_not_in_a_snapshot() -> None:
    def fun(x: Any) -> Any:
        def body(c: Any) -> Any:
            v, rest = c
            return v * 1.5 + rest[0], jnp.array(rest, copy=True)

        v, rest = jax.lax.while_loop(lambda c: c[0] < 5.0, body, (x, x * jnp.ones(99)))
        return v + jnp.sum(rest)

    assert seams.compiled(fun, 0.3).layout.capsule_bytes() == 4 + 8
    assert_close(retape.jax.grad(fun, plan=FEW)(0.3), jax.jacfwd(fun)(0.3))

"""Parts of programs, made of their own equations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.extend import core

from retape.engines.jaxpr.codegen._min_cut import merge_equal
from retape.engines.jaxpr.jaxprs._jax_internals import DropVar
from retape.engines.jaxpr.jaxprs._subprogram import excerpt, slice_between

TABLE = np.linspace(1.0, 2.0, 3, dtype=np.float32)


def several(x: Any, y: Any) -> Any:
    a = jnp.sin(x) * TABLE
    b, c = lax.top_k(a + y, 2)
    d = a * jnp.sin(x)
    return b[0] + d[0], c, d, 2.0


X, Y = np.float32([0.3, 0.7, 0.1]), np.float32([1.0, -2.0, 0.5])
WHOLE = jax.make_jaxpr(several)(X, Y)
INNER = WHOLE.jaxpr
MADE = [v for e in INNER.eqns for v in e.outvars if not isinstance(v, DropVar)]


def _values(names: list[Any]) -> list[Any]:
    """What the whole program computes for some of its variables."""
    consts = dict(zip(INNER.constvars, WHOLE.consts, strict=True))
    every = excerpt(INNER, INNER.invars, names, INNER.eqns, consts)
    return core.jaxpr_as_fun(every)(X, Y)


@given(st.sets(st.sampled_from(MADE)), st.lists(st.sampled_from(MADE), min_size=1))
def test_a_part_computes_what_the_whole_does(known: set[Any], outs: list[Any]) -> None:
    start = [*INNER.invars, *sorted(known, key=MADE.index)]
    part = slice_between(WHOLE, start, outs)
    got = core.jaxpr_as_fun(part)(X, Y, *_values(start[2:]))
    for a, b in zip(got, _values(outs), strict=True):
        assert np.array_equal(a, b)
    made = [v for e in part.jaxpr.eqns for v in e.outvars]
    assert known.isdisjoint(made), "what is given is not made again"


def test_a_part_that_does_not_follow() -> None:
    with pytest.raises(AssertionError, match="does not follow"):
        slice_between(WHOLE, [INNER.invars[0]], [INNER.outvars[0]])


def test_literals_may_be_outputs() -> None:
    part = slice_between(WHOLE, list(INNER.invars), list(INNER.outvars))
    assert core.jaxpr_as_fun(part)(X, Y)[3] == 2.0


def test_constants_are_kept_where_they_are_read() -> None:
    (sine,) = INNER.eqns[0].outvars
    assert slice_between(WHOLE, list(INNER.invars), [sine]).consts == []
    assert len(slice_between(WHOLE, list(INNER.invars), INNER.outvars).consts) == 1


def test_equal_work_is_done_once() -> None:
    slim = merge_equal(WHOLE)
    names = [e.primitive.name for e in slim.jaxpr.eqns]
    assert [e.primitive.name for e in INNER.eqns].count("sin") == 2
    assert names.count("sin") == 1
    for a, b in zip(core.jaxpr_as_fun(slim)(X, Y), several(X, Y), strict=True):
        assert np.array_equal(a, b)


def test_zeros_of_either_sign_are_not_equal() -> None:
    closed = jax.make_jaxpr(lambda x: (1.0 / (x * 0.0), 1.0 / (x * -0.0)))(1.0)
    assert core.jaxpr_as_fun(merge_equal(closed))(1.0) == [np.inf, -np.inf]


def test_what_was_dropped_is_made_where_it_is_wanted() -> None:
    closed = jax.make_jaxpr(lambda x: (lax.top_k(x, 1), lax.top_k(x, 1)))(X)
    first, second = (e for e in closed.jaxpr.eqns if e.primitive.name == "top_k")
    hidden = [first.outvars[0], DropVar(first.outvars[1].aval)]
    eqns = [e.replace(outvars=hidden) if e is first else e for e in closed.jaxpr.eqns]
    outs = [first.outvars[0], *second.outvars]
    slim = merge_equal(excerpt(closed.jaxpr, closed.jaxpr.invars, outs, eqns))
    _, *got = core.jaxpr_as_fun(slim)(X)
    for a, b in zip(got, lax.top_k(X, 1), strict=True):
        assert np.array_equal(a, b)

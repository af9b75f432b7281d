"""What steers a sweep on a GPU: integers that its loops carry, each a kernel a turn.

Programs stand in the rows. A loop of one block carries none of ours if the number of
steps is known, and one vector if it is not; the loops around it one vector. The counter
of a `scan` is not among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core

import retape
import retape.jax

X = jnp.linspace(0.1, 1.0, 9999)
PLAN = retape.fixed_space(snapshots=3, stage=16)


def _known(x: Any) -> Any:
    return lax.fori_loop(0, 100, lambda i, x: jnp.sin(x) + 0.1 * i, x)


def _scan(x: Any) -> Any:
    return lax.scan(lambda c, a: (jnp.sin(c) + a, None), x, jnp.ones(100))[0]


def _unknown(x: Any) -> Any:
    more = lambda s: (s[0] < 100) & (s[1][0] < 9)  # noqa: E731
    return lax.while_loop(more, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, x))[1]


def _bound_by_an_argument(x: Any) -> Any:
    n = jnp.sum(x > 0)
    return lax.fori_loop(0, n, lambda _, x: jnp.sin(x), x)


def _nested(x: Any) -> Any:
    return lax.fori_loop(0, 9, lambda _, x: _unknown(x) + 1, x)


class Steering(NamedTuple):
    """The most integers that a loop carries."""

    inside: int
    """A loop that holds no other."""
    around: int
    """One that does."""


ROWS = {
    "known": (_known, Steering(0, 1)),
    "scan": (_scan, Steering(1, 2)),  # its counter is taped, for the rows that it reads
    "unknown": (_unknown, Steering(1, 1)),
    "bound by an argument": (_bound_by_an_argument, Steering(0, 1)),
    "nested": (_nested, Steering(1, 1)),
}


def carried(jaxpr: Any) -> Iterator[tuple[bool, int]]:
    """For each loop: whether it holds another, and how many integers it carries."""
    for eqn in jaxpr.eqns:
        inner = filter(_is_code, jax.tree.leaves(eqn.params))
        found = [each for j in inner for each in carried(getattr(j, "jaxpr", j))]
        yield from found
        if eqn.primitive.name not in ("scan", "while"):
            continue
        body = eqn.params["jaxpr" if eqn.primitive.name == "scan" else "body_jaxpr"]
        count = eqn.params.get("num_carry", len(body.out_avals))
        changed = _changed(body.jaxpr, count)
        own = eqn.primitive.name == "scan" and _has_counter(body.jaxpr)
        yield bool(found), sum(map(_steers, changed)) - own


def _is_code(value: Any) -> bool:
    return isinstance(value, core.Jaxpr | core.ClosedJaxpr)


def _changed(body: Any, count: int) -> list[Any]:
    """What is carried and not only handed on."""
    outs = body.outvars[:count]
    return [v.aval for v in outs if v not in body.invars]


def _steers(aval: Any) -> bool:
    whole = np.issubdtype(aval.dtype, np.integer) or aval.dtype == bool
    return whole and aval.size <= 1024


def _has_counter(body: Any) -> bool:
    """Whether a `fori_loop` carries its index: XLA has one counter for both."""
    adds = [e.outvars[0] for e in body.eqns if e.primitive.name == "add"]
    return any(v in body.outvars and _steers(v.aval) and not v.aval.shape for v in adds)


@pytest.mark.parametrize("name", ROWS)
def test_loops_carry_what_steers_in_one_vector(name: str) -> None:
    fun, most = ROWS[name]
    loss = lambda x: jnp.sum(fun(x) ** 2)  # noqa: E731
    gradient = retape.jax.grad(loss, plan=PLAN, loops="device")
    loops = list(carried(jax.make_jaxpr(gradient)(X).jaxpr))
    assert loops
    inside = max(n for holds, n in loops if not holds)
    around = max(n for holds, n in loops if holds)
    assert Steering(inside, around) == most

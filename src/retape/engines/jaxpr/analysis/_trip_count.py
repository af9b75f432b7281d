"""Trip counts of `while` loops, found by running what counts.

The test of a loop looks at some of its state; that is made from some of the state
before; and so on, until no more is needed. If these are integers and truths of which a
few values are possible, that part of the loop is run, alone, while tracing: for each of
them, so that a counter which begins at 0 or 1 gives the least and the most. Of a
conjunction the parts that can be run bound the trips from above.

A real number is not counted by: what is compiled may round in another way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from retape.engines.jaxpr.analysis._known_values import (
    Possible,
    asks_others,
    at_once,
    bind_anywhere,
    combinations,
)
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._evaluate import dce_inputs, evaluate
from retape.engines.jaxpr.jaxprs._rewrite import contains
from retape.engines.jaxpr.jaxprs._subprogram import slice_between

_MOST_TRIPS = 1 << 26
"""Trips that are counted: an eighth of a second, of 2 ns each (a CPU, JAX 0.10.2)."""
_MOST_UNSURE = 64
"""The same where a part of the test is left out, without which it may never fail."""


@dataclass(frozen=True, slots=True)
class Trips:
    """At least `least`, at most `most` trips; `None` if there is no bound."""

    least: int
    most: int | None


UNBOUNDED = Trips(0, None)


def trip_bounds(eqn: Any, ins: Sequence[Possible]) -> Trips:
    """Bounds of the trip count, from what is known about the operands."""
    test, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
    (out,) = test.out_avals
    if out.shape != () or out.dtype != np.bool_ or test.effects:
        return UNBOUNDED
    skip, parts = eqn.params["cond_nconsts"], range(len(_conjuncts(test.jaxpr)))
    known = [i for i in parts if _counter(test, body, skip, (i,)).starts(ins)]
    counter = _counter(test, body, skip, tuple(known))
    starts = counter.starts(ins)
    if not known or not starts or counter.is_uncertain:
        return UNBOUNDED
    exact = len(known) == len(parts)
    limit = _MOST_TRIPS if exact else _MOST_UNSURE
    counts = [_count(counter, start, limit) for start in starts]
    if max(counts) > limit:
        return UNBOUNDED
    return Trips(min(counts) if exact else 0, max(counts))


@dataclass(frozen=True, slots=True, eq=False)
class _Counter:
    """The part of a loop that decides on some conjuncts of its test."""

    test: core.ClosedJaxpr
    body: core.ClosedJaxpr
    needed: tuple[bool, ...]
    """Which of the loop's operands they read."""
    skip: int
    """How many of those are constants of the test, and then the carry begins at"""
    first: int

    @property
    def is_uncertain(self) -> bool:
        """Whether what decides does more than compute, or rounds on the way."""
        parts = self.test, self.body
        return any(contains(j, asks_others) or contains(j, _rounds) for j in parts)

    def starts(self, ins: Sequence[Possible]) -> list[tuple[Any, ...]] | None:
        """All that the operands may be; `None` if that is not known."""
        read = [v for v, n in zip(ins, self.needed, strict=True) if n]
        return combinations(read)


@cached(256)
def _counter(
    test: core.ClosedJaxpr, body: core.ClosedJaxpr, skip: int, which: tuple[int, ...]
) -> _Counter:
    parts = _conjuncts(test.jaxpr)
    asked = test.replace(jaxpr=test.jaxpr.replace(outvars=[parts[i] for i in which]))
    used = dce_inputs(asked)[1]
    first, state = used[:skip], used[skip:]
    inner, more = body.jaxpr, len(body.in_avals) - len(state)
    while True:
        keep = [*[False] * more, *state]
        # What the loop says to others, and what nothing here reads, is left out.
        counted = [v for v, used in zip(inner.outvars, state, strict=True) if used]
        turn = slice_between(body, inner.invars, counted)
        turn, read = dce_inputs(turn, keep=keep)
        if read[more:] == state:
            break
        state = read[more:]
    asked = dce_inputs(asked, keep=[*[False] * skip, *state])[0]
    needed = (*first, *read)
    return _Counter(asked, turn, needed, sum(first), sum(first) + sum(read[:more]))


@cached(256)
def _count(counter: _Counter, start: tuple[Any, ...], limit: int) -> int:
    """How often the loop turns; more than `limit` if that is more."""
    fixed, constants = start[: counter.skip], start[counter.skip : counter.first]

    def test(*given: Any) -> list[Any]:
        return evaluate(counter.test, given, bind_anywhere)

    def turn(*given: Any) -> list[Any]:
        return evaluate(counter.body, given, bind_anywhere)

    def going(state: tuple[Any, list[Any]]) -> Any:
        n, carry = state
        return reduce(lax.bitwise_and, test(*fixed, *carry), n <= limit)

    def step(state: tuple[Any, list[Any]]) -> tuple[Any, list[Any]]:
        return state[0] + np.int64(1), turn(*constants, *state[1])

    with at_once():
        carry = list(map(jnp.asarray, start[counter.first :]))
        return int(lax.while_loop(going, step, (jnp.int64(0), carry))[0])


def _rounds(eqn: core.JaxprEqn) -> bool:
    """Whether an operation makes something else than whole numbers and truths."""
    types = (getattr(v.aval, "dtype", None) for v in eqn.outvars)
    return any(
        t is None or getattr(t, "kind", "") not in ("b", "i", "u") for t in types
    )


def _conjuncts(test: core.Jaxpr) -> list[Any]:
    """The truths of which a test is the conjunction."""
    made = {v: e for e in test.eqns for v in e.outvars}
    found, stack = [], [*test.outvars]
    while stack:
        atom = stack.pop()
        eqn = None if isinstance(atom, core.Literal) else made.get(atom)
        if eqn is not None and eqn.primitive.name == "and":
            stack += eqn.invars
        else:
            found.append(atom)
    return found

"""Trip counts of `while` loops, proved from their jaxprs.

A *counter* is an integer carry to which every trip adds the same number. A test of a
counter against a limit lets it through for a number of trips that is easily computed;
a `while` whose condition is a conjunction of such tests runs for the least of these
numbers, and one whose condition implies such a test runs no more often than that.

The proof is for the numbers of the machine: a counter that could wrap round before its
test fails is not accepted, nor is a floating-point one, since adding 0.1 ten times is
not adding 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from retape.engines.jaxpr.analysis._range_analysis import interpret
from retape.engines.jaxpr.analysis._ranges import (
    Int,
    Range,
    Same,
    Test,
    Truth,
    bounds,
    top,
)


@dataclass(frozen=True, slots=True)
class Trips:
    """At least `least`, at most `most` trips; `None` if there is no bound."""

    least: int
    most: int | None


UNBOUNDED = Trips(0, None)


def trip_bounds(eqn: Any, ins: Sequence[Range]) -> Trips:
    """Bounds of the trip count, from what is known about the operands."""
    p = eqn.params
    nc, nb = p["cond_nconsts"], p["body_nconsts"]
    cond_consts, body_consts, init = ins[:nc], ins[nc : nc + nb], ins[nc + nb :]
    (out,) = p["cond_jaxpr"].out_avals
    if out.shape != () or out.dtype != np.bool_:
        return UNBOUNDED
    # What no trip changes keeps what is known about it on entry.
    entry = [_entry_range(i, v.aval) for i, v in enumerate(eqn.outvars)]
    after = interpret(p["body_jaxpr"], [*body_consts, *entry])
    entry = [
        before if new == old else old if isinstance(old, Int) else top(v.aval)
        for before, old, new, v in zip(init, entry, after, eqn.outvars, strict=True)
    ]
    after = interpret(p["body_jaxpr"], [*body_consts, *entry])
    (going,) = interpret(p["cond_jaxpr"], [*cond_consts, *entry])
    if not isinstance(going, Truth):
        return UNBOUNDED
    if going.never:
        return Trips(0, 0)
    counters = [
        _Counter(v.aval.dtype, start, new.lo)
        if isinstance(start, Int) and isinstance(new, Int) and new.base == i
        else None
        for i, (v, start, new) in enumerate(zip(eqn.outvars, init, after, strict=True))
    ]
    return _together(going, [_passes(t, counters[t.base]) for t in going.tests])


@dataclass(frozen=True, slots=True)
class _Counter:
    """A carry that starts in a range and takes equal steps."""

    dtype: Any
    start: Int
    step: int


def _entry_range(index: int, aval: Any) -> Range:
    known = top(aval)
    return Int(index, 0, 0) if isinstance(known, Int) else Same(index)


def _together(going: Truth, tests: Sequence[Trips]) -> Trips:
    """The least of all; a condition that only implies its tests may fail earlier."""
    most = min((t.most for t in tests if t.most is not None), default=None)
    if most is None:
        return UNBOUNDED
    least = min(t.least for t in tests) if going.exact else 0
    return Trips(least, most)


def _passes(test: Test, counter: _Counter | None) -> Trips:
    """For how many trips a test lets its counter through."""
    if counter is None or counter.start.base is not None:
        return UNBOUNDED
    # Seen in the direction of the test, the counter climbs from `low..high`.
    ends = [
        test.sign * (end + test.shift) for end in (counter.start.lo, counter.start.hi)
    ]
    low, high = min(ends), max(ends)
    step = test.sign * counter.step
    if step <= 0:
        return UNBOUNDED
    # The last value that is tested is the first one that fails.
    last = max(high, test.hi - 1 + step)
    tested = [test.sign * low, test.sign * last]
    held = [value - test.shift for value in tested]
    if not (_fit(tested, test.dtype) and _fit(held, counter.dtype)):
        return UNBOUNDED
    return Trips(
        max(0, -((high - test.lo) // step)), max(0, -((low - test.hi) // step))
    )


def _fit(values: Sequence[int], dtype: Any) -> bool:
    least, most = bounds(dtype)
    return all(least <= v <= most for v in values)

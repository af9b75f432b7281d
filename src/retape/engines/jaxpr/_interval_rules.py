"""What an operation on integers or truth values tells about its result.

Each rule takes an equation and what is known of its operands, and returns what is known
of its one result. A result that may have wrapped round is anything of its type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ._intervals import (
    FALSE,
    MAYBE,
    TRUE,
    Int,
    Same,
    Test,
    Truth,
    Value,
    anything,
    bounds,
    join,
)


def _same(eqn: Any, value: Value) -> Value:
    return value


def _reduced(eqn: Any, value: Value) -> Value:
    """A reduction of a single number is that number."""
    return value if eqn.invars[0].aval.shape == () else anything(eqn.outvars[0].aval)


def _in_range(eqn: Any, base: Any, lo: int, hi: int) -> Value:
    """A sum: exact near a counter, in the ring; a plain range must fit the type."""
    aval = eqn.outvars[0].aval
    least, most = bounds(aval.dtype)
    if base is not None:
        return Int(base, lo, hi) if lo == hi else anything(aval)
    return Int(None, lo, hi) if least <= lo and hi <= most else anything(aval)


def _add(eqn: Any, a: Value, b: Value) -> Value:
    if not isinstance(a, Int) or not isinstance(b, Int):
        return anything(eqn.outvars[0].aval)
    if a.base is not None and b.base is not None:
        return anything(eqn.outvars[0].aval)
    base = b.base if a.base is None else a.base
    return _in_range(eqn, base, a.lo + b.lo, a.hi + b.hi)


def _sub(eqn: Any, a: Value, b: Value) -> Value:
    if not isinstance(a, Int) or not isinstance(b, Int) or b.base is not None:
        return anything(eqn.outvars[0].aval)
    return _in_range(eqn, a.base, a.lo - b.hi, a.hi - b.lo)


def _plain(fun: Callable[..., tuple[int, int]]) -> Callable[..., Value]:
    """A rule for plain ranges only."""

    def rule(eqn: Any, *ins: Value) -> Value:
        ranges = [v for v in ins if isinstance(v, Int) and v.base is None]
        if len(ranges) < len(ins):
            return anything(eqn.outvars[0].aval)
        return _in_range(eqn, None, *fun(*ranges))

    return rule


def _mul(a: Int, b: Int) -> tuple[int, int]:
    corners = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    return min(corners), max(corners)


def _convert(eqn: Any, value: Value) -> Value:
    aval = eqn.outvars[0].aval
    unknown = anything(aval)
    if isinstance(value, Same) and aval.dtype == eqn.invars[0].aval.dtype:
        return value
    if isinstance(value, Truth):
        if isinstance(unknown, Truth):
            return value
        return Int(None, int(value == TRUE), int(not value.never))
    if not isinstance(value, Int) or not isinstance(unknown, Int):
        return unknown
    if value.base is None:
        return value if unknown.lo <= value.lo <= value.hi <= unknown.hi else unknown
    before = bounds(eqn.invars[0].aval.dtype)
    wider = unknown.lo <= before[0] and before[1] <= unknown.hi
    # A sum may have wrapped round in the narrower type; the counter itself has not.
    return value if wider and value.lo == value.hi == 0 else unknown


def _less(eqn: Any, a: Value, b: Value, *, slack: int = 0, swap: bool = False) -> Value:
    """`a < b + slack`, on integers; `swap` exchanges the two."""
    a, b = (b, a) if swap else (a, b)
    if not isinstance(a, Int) or not isinstance(b, Int):
        return MAYBE
    dtype = eqn.invars[0].aval.dtype
    if a.base is None and b.base is None:
        if a.hi < b.lo + slack:
            return TRUE
        return FALSE if a.lo >= b.hi + slack else MAYBE
    if a.base is not None and b.base is None and a.fixed:
        test = Test(a.base, 1, a.lo, b.lo + slack, b.hi + slack, dtype)
        return Truth(frozenset({test}), True)
    if a.base is None and b.base is not None and b.fixed:
        test = Test(b.base, -1, b.lo, slack - a.hi, slack - a.lo, dtype)
        return Truth(frozenset({test}), True)
    return MAYBE


def _equal(eqn: Any, a: Value, b: Value) -> Value:
    if not isinstance(a, Int) or not isinstance(b, Int) or a.base != b.base:
        return MAYBE
    if a.fixed and a == b:
        return TRUE
    apart = a.base is None and (a.hi < b.lo or b.hi < a.lo)
    return FALSE if apart else MAYBE


def _not(eqn: Any, a: Value) -> Value:
    if a == TRUE:
        return FALSE
    if a == FALSE:
        return TRUE
    if isinstance(a, Truth) and a.exact and len(a.tests) == 1:
        (t,) = a.tests
        # not (s < limit)  <=>  -s < 1 - limit
        flipped = Test(t.base, -t.sign, t.shift, 1 - t.hi, 1 - t.lo, t.dtype)
        return Truth(frozenset({flipped}), True)
    return anything(eqn.outvars[0].aval)


def _and(eqn: Any, a: Value, b: Value) -> Value:
    if eqn.outvars[0].aval.dtype != np.bool_:
        return anything(eqn.outvars[0].aval)
    a, b = _truth(a), _truth(b)
    if a.never or b.never:
        return FALSE
    return Truth(a.tests | b.tests, a.exact and b.exact)


def _or(eqn: Any, a: Value, b: Value) -> Value:
    if eqn.outvars[0].aval.dtype != np.bool_:
        return anything(eqn.outvars[0].aval)
    a, b = _truth(a), _truth(b)
    if TRUE in (a, b):
        return TRUE
    if a.never or b.never:
        return b if a.never else a
    return MAYBE


def _truth(value: Value) -> Truth:
    return value if isinstance(value, Truth) else MAYBE


def _select(eqn: Any, which: Value, *cases: Value) -> Value:
    aval = eqn.outvars[0].aval
    if which in (TRUE, FALSE):
        return cases[int(which == TRUE)]
    if isinstance(which, Int) and which.base is None and which.fixed:
        return cases[which.lo] if 0 <= which.lo < len(cases) else anything(aval)
    found = cases[0]
    for case in cases[1:]:
        found = join(found, case, aval)
    return found


RULES: dict[str, Callable[..., Value]] = {
    "copy": _same,
    "stop_gradient": _same,
    "reduce_or": _reduced,
    "reduce_and": _reduced,
    "reduce_max": _reduced,
    "reduce_min": _reduced,
    "add": _add,
    "sub": _sub,
    "mul": _plain(_mul),
    "neg": _plain(lambda a: (-a.hi, -a.lo)),
    "max": _plain(lambda a, b: (max(a.lo, b.lo), max(a.hi, b.hi))),
    "min": _plain(lambda a, b: (min(a.lo, b.lo), min(a.hi, b.hi))),
    "convert_element_type": _convert,
    "lt": _less,
    "le": lambda eqn, a, b: _less(eqn, a, b, slack=1),
    "gt": lambda eqn, a, b: _less(eqn, a, b, swap=True),
    "ge": lambda eqn, a, b: _less(eqn, a, b, slack=1, swap=True),
    "eq": _equal,
    "ne": lambda eqn, a, b: _not(eqn, _equal(eqn, a, b)),
    "not": _not,
    "and": _and,
    "or": _or,
    "select_n": _select,
}

"""Transfer functions of the range analysis, one for each primitive.

Each rule takes an equation and what is known of its operands, and returns what is known
of its one result. A result that may have wrapped round is anything of its type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from retape.engines.jaxpr.analysis._ranges import (
    FALSE,
    MAYBE,
    TRUE,
    Int,
    Range,
    Same,
    Test,
    Truth,
    bounds,
    join,
    top,
)


def _keep_ranges(eqn: Any, value: Range) -> Range:
    return value


def _reduced(eqn: Any, value: Range) -> Range:
    """A reduction of a single number is that number."""
    return value if eqn.invars[0].aval.shape == () else top(eqn.outvars[0].aval)


def _in_range(eqn: Any, base: Any, lo: int, hi: int) -> Range:
    """A sum: exact near a counter, in the ring; a plain range must fit the type."""
    aval = eqn.outvars[0].aval
    least, most = bounds(aval.dtype)
    if base is not None:
        return Int(base, lo, hi) if lo == hi else top(aval)
    return Int(None, lo, hi) if least <= lo and hi <= most else top(aval)


def _add(eqn: Any, a: Range, b: Range) -> Range:
    if not isinstance(a, Int) or not isinstance(b, Int):
        return top(eqn.outvars[0].aval)
    if a.base is not None and b.base is not None:
        return top(eqn.outvars[0].aval)
    base = b.base if a.base is None else a.base
    return _in_range(eqn, base, a.lo + b.lo, a.hi + b.hi)


def _sub(eqn: Any, a: Range, b: Range) -> Range:
    if not isinstance(a, Int) or not isinstance(b, Int) or b.base is not None:
        return top(eqn.outvars[0].aval)
    return _in_range(eqn, a.base, a.lo - b.hi, a.hi - b.lo)


def _ranges_only(fun: Callable[..., tuple[int, int]]) -> Callable[..., Range]:
    """A rule for plain ranges only."""

    def rule(eqn: Any, *ins: Range) -> Range:
        ranges = [v for v in ins if isinstance(v, Int) and v.base is None]
        if len(ranges) < len(ins):
            return top(eqn.outvars[0].aval)
        return _in_range(eqn, None, *fun(*ranges))

    return rule


def _mul(a: Int, b: Int) -> tuple[int, int]:
    corners = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    return min(corners), max(corners)


def _convert(eqn: Any, value: Range) -> Range:
    aval = eqn.outvars[0].aval
    unknown = top(aval)
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


def _less(eqn: Any, a: Range, b: Range, *, slack: int = 0, swap: bool = False) -> Range:
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


def _equal(eqn: Any, a: Range, b: Range) -> Range:
    if not isinstance(a, Int) or not isinstance(b, Int) or a.base != b.base:
        return MAYBE
    if a.fixed and a == b:
        return TRUE
    apart = a.base is None and (a.hi < b.lo or b.hi < a.lo)
    return FALSE if apart else MAYBE


def _not(eqn: Any, a: Range) -> Range:
    if a == TRUE:
        return FALSE
    if a == FALSE:
        return TRUE
    if isinstance(a, Truth) and a.exact and len(a.tests) == 1:
        (t,) = a.tests
        # not (s < limit)  <=>  -s < 1 - limit
        flipped = Test(t.base, -t.sign, t.shift, 1 - t.hi, 1 - t.lo, t.dtype)
        return Truth(frozenset({flipped}), True)
    return top(eqn.outvars[0].aval)


def _and(eqn: Any, a: Range, b: Range) -> Range:
    if eqn.outvars[0].aval.dtype != np.bool_:
        return top(eqn.outvars[0].aval)
    a, b = _truth(a), _truth(b)
    if a.never or b.never:
        return FALSE
    return Truth(a.tests | b.tests, a.exact and b.exact)


def _or(eqn: Any, a: Range, b: Range) -> Range:
    if eqn.outvars[0].aval.dtype != np.bool_:
        return top(eqn.outvars[0].aval)
    a, b = _truth(a), _truth(b)
    if TRUE in (a, b):
        return TRUE
    if a.never or b.never:
        return b if a.never else a
    return MAYBE


def _truth(value: Range) -> Truth:
    return value if isinstance(value, Truth) else MAYBE


def _select(eqn: Any, which: Range, *cases: Range) -> Range:
    aval = eqn.outvars[0].aval
    if which in (TRUE, FALSE):
        return cases[int(which == TRUE)]
    if isinstance(which, Int) and which.base is None and which.fixed:
        return cases[which.lo] if 0 <= which.lo < len(cases) else top(aval)
    found = cases[0]
    for case in cases[1:]:
        found = join(found, case, aval)
    return found


RULES: dict[str, Callable[..., Range]] = {
    "copy": _keep_ranges,
    "stop_gradient": _keep_ranges,
    "reduce_or": _reduced,
    "reduce_and": _reduced,
    "reduce_max": _reduced,
    "reduce_min": _reduced,
    "add": _add,
    "sub": _sub,
    "mul": _ranges_only(_mul),
    "neg": _ranges_only(lambda a: (-a.hi, -a.lo)),
    "max": _ranges_only(lambda a, b: (max(a.lo, b.lo), max(a.hi, b.hi))),
    "min": _ranges_only(lambda a, b: (min(a.lo, b.lo), min(a.hi, b.hi))),
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

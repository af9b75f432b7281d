"""The abstract domain: ranges of integers, tests, truths.

An integer lies in a range, or a known distance from where a counter stood on entry. A
truth value *implies* some tests of counters, and is *exact* if it follows from them:

    Int(None, 0, 7)             0 <= v <= 7
    Int(c, 2, 2)                v = c + 2, in the ring of c's type
    Truth({c < 7}, exact)       v  <=>  c < 7
    Truth({c < 7}, not exact)   v   =>  c < 7
    Truth({}, exact)            true

Floating-point values and arrays are unknown (`None`). All numbers are Python's, so
nothing here wraps round; where the program's own numbers may, a range widens to the
whole type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer


@dataclass(frozen=True, slots=True)
class Int:
    """`base + lo <= value <= base + hi`; without a base, a plain range."""

    base: Any
    lo: int
    hi: int

    @property
    def fixed(self) -> bool:
        """Tell whether only one value is possible."""
        return self.lo == self.hi


@dataclass(frozen=True, slots=True)
class Test:
    """`sign * (base + shift) < limit`, where `lo <= limit <= hi`, in `dtype`."""

    base: Any
    sign: int
    shift: int
    lo: int
    hi: int
    dtype: Any


@dataclass(frozen=True, slots=True)
class Truth:
    """A boolean that implies all the tests, and follows from them if `exact`."""

    tests: frozenset[Test]
    exact: bool
    never: bool = False


@dataclass(frozen=True, slots=True)
class Same:
    """The very value that a carry had on entry: nothing else is known of it."""

    base: Any


Range = Int | Truth | Same | None

TRUE = Truth(frozenset(), True)
FALSE = Truth(frozenset(), False, never=True)
MAYBE = Truth(frozenset(), False)


def bounds(dtype: Any) -> tuple[int, int]:
    """The least and the greatest integer of a type."""
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def top(aval: Any) -> Range:
    """The top of the domain: all values of a type."""
    dtype = getattr(aval, "dtype", None)
    if dtype is None or aval.shape != ():
        return None
    if dtype == np.bool_:
        return MAYBE
    if jax.dtypes.issubdtype(dtype, np.integer) and np.dtype(dtype).kind in "iu":
        return Int(None, *bounds(dtype))
    return None


def constant(value: Any, aval: Any) -> Range:
    """A value that stands in the program."""
    known = top(aval)
    if known is None or isinstance(value, Tracer):
        return known
    if isinstance(known, Truth):
        return TRUE if bool(value) else FALSE
    return Int(None, int(value), int(value))


def join(a: Range, b: Range, aval: Any) -> Range:
    """The join of two abstract values: what holds of both."""
    if a == b:
        return a
    if isinstance(a, Int) and isinstance(b, Int) and a.base is None and b.base is None:
        return Int(None, min(a.lo, b.lo), max(a.hi, b.hi))
    return top(aval)

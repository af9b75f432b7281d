"""Tape arena: *pools*, one array each for all rows of a kind.

Blocks of any kind share the pools, so that a stage through many different blocks needs
no more than the hungriest of them. Small arrays are taped number by number in a pool
of numbers, whatever their shapes:

    float64[4], float64[2, 2], float64   ->   nine rows of the pool of float64 numbers

A step of MJX tapes some eighty arrays of at most sixteen elements. One after the other
they would be eighty kernels forwards and eighty backwards, each with its share of the
compile time; together they are one for each type of element.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import jax
import numpy as np
from jax import lax

from retape.engines.jaxpr.jaxprs._avals import Kind, elements
from retape.engines.jaxpr.jaxprs._row_ops import put_if, put_rows, row, rows
from retape.engines.jaxpr.jaxprs._scalar_ops import chosen

SMALL = 64
"""Elements of the largest array that is taped number by number: it is copied once."""


def pool_of(kind: Kind) -> Kind:
    """The kind of the rows of the pool in which values of a kind are taped."""
    return Kind((), kind.dtype, kind.axes) if _is_small(kind) else kind


def pushes(kinds: Iterable[Kind]) -> Counter[Kind]:
    """How many rows of each pool values of these kinds fill."""
    found: Counter[Kind] = Counter()
    for kind in kinds:
        found[pool_of(kind)] += _elements(kind)
    return found


def push(pool: Any, values: Sequence[Any], top: Any, ok: Any = None) -> Any:
    """The pool with values that belong in it from row `top` on.

    Args:
        pool: The pool.
        values: What is taped.
        top: The first free row.
        ok: A truth: if it is false, the rows stay as they are.
    """
    if pool.ndim == 1:
        numbers = lax.concatenate([lax.reshape(v, (v.size,)) for v in values], 0)
        if ok is not None:
            numbers = chosen(ok, numbers, rows(pool, top, numbers.size))
        return put_rows(pool, numbers, top)
    for i, value in enumerate(values):
        pool = put_if(ok, pool, value, _behind(top, i))
    return pool


def pop(pool: Any, kinds: Sequence[Kind], top: Any) -> list[Any]:
    """Values of these kinds, which `push` put there from row `top` on."""
    if pool.ndim > 1:
        return [row(pool, _behind(top, i)) for i in range(len(kinds))]
    numbers = rows(pool, top, sum(map(_elements, kinds)))
    found, begin = [], 0
    for kind in kinds:
        end = begin + _elements(kind)
        found.append(lax.reshape(numbers[begin:end], kind.shape))
        begin = end
    return found


def _behind(top: Any, count: int) -> Any:
    return top + np.int32(count) if count else top


def _is_small(kind: Kind) -> bool:
    plain = kind.sharding is None
    plain = plain and not jax.dtypes.issubdtype(kind.dtype, jax.dtypes.extended)
    return plain and 0 < elements(kind.shape) <= SMALL


def _elements(kind: Kind) -> int:
    return prod(kind.shape) if _is_small(kind) else 1

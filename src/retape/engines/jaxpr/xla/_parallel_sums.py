"""Long sums as four running sums side by side.

XLA's CPU compiler rewrites a sum over more than 32 elements into windows of 32, whose
code it unrolls: on the paper's example (Fig. 8) a fifth of all compiling. A sum of
several arrays at once it leaves alone, and the additions for one array need not wait
for those for another. Four are under way at any time:

    one:   s = sum x               a, b, c, d = sum (x[:k], x[k:2k], x[2k:3k], x[3k:])
                                   s = (a + b) + (c + d)
    two:   s = sum x;  t = sum y   a, b, c, d = sum (x[:k], x[k:], y[:k], y[k:])
                                   s = a + b;  t = c + d
    more:  s = sum x;  t = ...     s, t, u, v = sum (x, y, z, w)

Sums go together if their arrays have one shape and none follows from another.
Cotangents of one number are added before they are summed up:

    u = sum x;  v = sum y;  s = add_any u v  ->  s = sum (x + y)

On the paper's example a step backwards has eight sums, which become two such loops.
Rounding grows with the length of one part; sums for which that matters are too long for
a kernel anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core

from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._rewrite import with_inside
from retape.engines.jaxpr.jaxprs._subprogram import variables

PARTS = 4
WINDOW = 32
"""Elements that XLA sums up as they are."""


@dataclass(frozen=True, slots=True)
class Sum:
    """A long sum: some arrays of one type, added and then summed up over some axes."""

    terms: tuple[Any, ...]
    axes: tuple[int, ...]
    eqn: core.JaxprEqn
    """The equation whose only output it is."""

    @property
    def out(self) -> Any:
        return self.eqn.outvars[0]

    @property
    def kind(self) -> tuple[tuple[int, ...], Any, tuple[int, ...]]:
        aval = self.terms[0].aval
        return aval.shape, aval.dtype, self.axes


def in_parts(closed: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program with its long sums, however deep, side by side.

    Equations are exchanged and moved; nothing is traced again.
    """
    eqns = [with_inside(e, in_parts) for e in closed.eqns]
    if any(map(is_long, eqns)):
        eqns = _gathered(_added_together(eqns, closed.jaxpr.outvars))
    elif all(new is old for new, old in zip(eqns, closed.eqns, strict=True)):
        return closed
    return closed.replace(jaxpr=closed.jaxpr.replace(eqns=eqns))


def is_long(eqn: core.JaxprEqn) -> bool:
    """Tell whether an equation is a sum that `in_parts` exchanges."""
    if eqn.primitive.name != "reduce_sum":
        return False
    given: Any = eqn.invars[0].aval
    long = any(given.shape[i] > WINDOW for i in eqn.params["axes"])
    return long and np.issubdtype(given.dtype, np.inexact)


def _added_together(
    eqns: Sequence[core.JaxprEqn], outs: Sequence[Any]
) -> list[core.JaxprEqn | Sum]:
    """The equations; sums that are only added, as cotangents, are one sum."""
    uses = Counter(v for e in eqns for v in variables(e.invars))
    uses.update(variables(outs))
    sums: dict[Any, Sum] = {}
    added: set[Any] = set()
    for eqn in eqns:
        if is_long(eqn):
            one = Sum(tuple(eqn.invars), tuple(eqn.params["axes"]), eqn)
        elif eqn.primitive.name == "add_any":
            read = [v for v in variables(eqn.invars) if uses[v] == 1 and v in sums]
            if len(read) != 2 or sums[read[0]].kind != sums[read[1]].kind:
                continue
            a, b = (sums[v] for v in read)
            one = Sum(a.terms + b.terms, a.axes, eqn)
            added.update(read)
        else:
            continue
        sums[one.out] = one
    made = [(e, e.outvars[0] if e.outvars else None) for e in eqns]
    return [sums.get(out, e) for e, out in made if out not in added]


def _gathered(items: Iterable[core.JaxprEqn | Sum]) -> list[core.JaxprEqn]:
    """The equations, each sum put off until another follows from it."""
    done: list[core.JaxprEqn] = []
    sums: list[Sum] = []
    waiting: list[core.JaxprEqn] = []
    late: set[Any] = set()

    def make() -> None:
        done.extend([*_side_by_side(sums), *waiting])
        for held in (sums, waiting, late):
            held.clear()

    for item in items:
        one = isinstance(item, Sum)
        waits = not late.isdisjoint(variables(item.terms if one else item.invars))
        if isinstance(item, Sum):
            if waits:
                make()
            sums.append(item)
            late.add(item.out)
        elif waits:
            waiting.append(item)
            late.update(item.outvars)
        else:
            done.append(item)
    make()
    return done


def _side_by_side(sums: Iterable[Sum]) -> list[core.JaxprEqn]:
    """A call for each few sums of one kind."""
    kinds: dict[Any, list[Sum]] = {}
    for one in sums:
        kinds.setdefault(one.kind, []).append(one)
    return [
        _call(kind, alike[i : i + PARTS])
        for kind, alike in kinds.items()
        for i in range(0, len(alike), PARTS)
    ]


def _call(kind: Any, sums: Sequence[Sum]) -> core.JaxprEqn:
    shape, dtype, axes = kind
    made = _sum_call(shape, dtype, axes, tuple(len(one.terms) for one in sums))
    terms = [v for one in sums for v in one.terms]
    return made.replace(
        invars=terms, outvars=[one.out for one in sums], ctx=sums[0].eqn.ctx
    )


@cached(256)
def _sum_call(
    shape: tuple[int, ...], dtype: Any, axes: tuple[int, ...], counts: tuple[int, ...]
) -> core.JaxprEqn:
    """The call that sums up what has this type: so many terms for each sum."""

    def add_up(*terms: Any) -> list[Any]:
        left = iter(terms)
        added = [reduce(lax.add, islice(left, n)) for n in counts]
        return side_by_side(added, axes)

    with jax.enable_x64(True):
        terms = [jax.ShapeDtypeStruct(shape, dtype)] * sum(counts)
        (call,) = jax.make_jaxpr(jax.jit(add_up))(*terms).eqns
    return call


def side_by_side(arrays: Sequence[Any], axes: Sequence[int]) -> list[Any]:
    """The sum of each of some arrays of one type over these axes.

    Few arrays are cut along the longest of the axes, into four parts in all.

    Examples:
        >>> import numpy as np
        >>> [s.item() for s in side_by_side([np.arange(10.0), np.ones(10)], (0,))]
        [45.0, 10.0]
    """
    zero = np.zeros((), arrays[0].dtype)
    cuts = [_in_parts(x, max(1, PARTS // len(arrays)), axes) for x in arrays]
    parts = [part for cut in cuts for part in cut]
    sums = lax.reduce(
        tuple(parts),
        (zero,) * len(parts),
        lambda s, t: tuple(map(lax.add, s, t)),
        tuple(axes),
    )
    left = iter(sums)
    return [_halved(list(islice(left, len(cut)))) for cut in cuts]


def _in_parts(x: Any, count: int, axes: Sequence[int]) -> list[Any]:
    """The array in parts of one length along the longest of the axes, with zeros."""
    if count == 1:
        return [x]
    longest = max(axes, key=lambda i: x.shape[i])
    length = -(-x.shape[longest] // count)
    short = [(0, 0, 0)] * x.ndim
    short[longest] = (0, count * length - x.shape[longest], 0)
    whole = lax.pad(x, np.zeros((), x.dtype), short)
    bounds = [(k * length, (k + 1) * length) for k in range(count)]
    return [lax.slice_in_dim(whole, *b, axis=longest) for b in bounds]


def _halved(values: list[Any]) -> Any:
    """The sum of a few numbers, as that of two halves."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return _halved(values[:half]) + _halved(values[half:])

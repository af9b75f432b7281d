"""Optimal cut points of a sequence of operations, and segments worth storing.

A cut keeps the values that cross it. In reverse, a marked stretch is run again, and all
that it makes is held until it has been swept back; the stretches after it are gone by
then. So the peak is the greatest, over the stretches, of what has been kept up to its
end and what it makes itself. A cut is tried only where little crosses.

`least_work_cut` is a dynamic programme over (place, bytes kept). It is not that of
`schedule/_chain`, which divides a stretch again and again, nor Rotor's of
`engines/eager/plan/_dynamic_programme`: under `jax.checkpoint` a stretch is run again
once, and its inside is held whole, so there is nothing to divide. What it has and those
have not are several ways to treat one stretch (`SegmentOption`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from retape.engines.jaxpr.analysis._flops import flops, size_of
from retape.engines.jaxpr.jaxprs._primitive_table import Also, is_a
from retape.engines.jaxpr.jaxprs._subprogram import variables
from retape.engines.jaxpr.layers.remat._flat_program import Graph
from retape.engines.jaxpr.layers.remat._run_segments import Stretch
from retape.engines.jaxpr.layers.remat._saves import Saves
from retape.schedule._in_use import running_sums

_CUTS = 120
"""Most places that are tried. A layer has one or two narrow ones."""

_BINS = 256
"""Bytes are counted in this many parts of a budget, rounded up."""


class SegmentOption(NamedTuple):
    """One way to treat a stretch: what it costs."""

    marked: bool
    products: bool
    """Whether matrix products are saved."""
    kept: int
    """Bytes that stay until the stretch is reversed."""
    inside: int
    """Bytes beside those while it is reversed."""
    work: int
    """Floating-point operations that are done once more."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Stretches, and what they are predicted to take.

    Attributes:
        stretches: In order.
        peak_bytes: Most bytes of intermediate values held at once.
        work: Floating-point operations that are done once more.
    """

    stretches: tuple[Stretch, ...]
    peak_bytes: int
    work: int


class Cutter:
    """The places at which a graph may be cut, and sums over what lies between."""

    def __init__(self, graph: Graph, ways: Sequence[str] = ("mark",)) -> None:
        self.graph = graph
        self.ways = ways
        eqns = graph.jaxpr.eqns
        kept = _lasting_bytes(graph)
        self.held = _sums(sum(kept.get(v, 0) for v in e.outvars) for e in eqns)
        self.work = _sums(map(flops, eqns))
        self.products = _sums(
            sum(map(_variable_bytes, e.outvars)) * _is_product(e) for e in eqns
        )
        self.cheap = _sums(0 if _is_product(e) else flops(e) for e in eqns)
        self.places = self._narrow()
        self.crossing = [self._crossing(p) for p in self.places]
        self.known: dict[tuple[int, int], list[SegmentOption]] = {}

    @property
    def stored(self) -> int:
        """Bytes of all values, if nothing is run again."""
        return self.held[-1]

    @property
    def everything(self) -> int:
        """Bytes of all values, with those that cross a place."""
        return self.held[-1] + sum(size for each in self.crossing for _, size in each)

    def _narrow(self) -> list[int]:
        """The place of least crossing bytes in each of `_CUTS` parts."""
        size = len(self.graph)
        made, last = self.graph.made, self.graph.last
        read = (
            (i + 1, last[v] + 1, _variable_bytes(v))
            for v, i in made.items()
            if v in last
        )
        across = running_sums(read, size + 1)
        width = max(1, -(-size // _CUTS))
        parts = [range(a, min(size, a + width)) for a in range(1, size, width)]
        # Of equals the first: the values that cross were just made.
        return [0, *(min(part, key=lambda p: across[p]) for part in parts), size]

    def _crossing(self, place: int) -> list[tuple[int, int]]:
        """(made at, bytes) of what is made before a place and read after it.

        The results of the whole are not counted, since they are kept anyway.
        """
        size, last = len(self.graph), self.graph.last
        return [
            (i, _variable_bytes(v))
            for v, i in self.graph.made.items()
            if i < place <= last.get(v, -1) and place < size
        ]

    def options(self, a: int, b: int) -> list[SegmentOption]:
        """The ways to treat what lies between the places number `a` and `b`."""
        if (a, b) not in self.known:
            self.known[a, b] = self._options(a, b)
        return self.known[a, b]

    def _options(self, a: int, b: int) -> list[SegmentOption]:
        start, stop = self.places[a], self.places[b]
        border = sum(size for i, size in self.crossing[b] if i >= start)
        held = self.held[stop] - self.held[start]
        work = self.work[stop] - self.work[start]
        found = [SegmentOption(True, False, border, held, work)]
        if "products" in self.ways:
            dots = self.products[stop] - self.products[start]
            cheap = self.cheap[stop] - self.cheap[start]
            found.append(
                SegmentOption(True, True, border + dots, max(0, held - dots), cheap)
            )
        if "store" in self.ways:
            found.append(SegmentOption(False, False, max(border, held), 0, 0))
        return found

    def stretch(self, a: int, b: int, way: SegmentOption) -> Stretch:
        start, stop = self.places[a], self.places[b]
        eqns = self.graph.jaxpr.eqns[start:stop] if way.products else ()
        saved = frozenset(v for e in eqns if _is_product(e) for v in e.outvars)
        return Stretch(start, stop, way.marked, Saves(saved))


def _sums(values: Iterable[int]) -> list[int]:
    return list(accumulate(values, initial=0))


def views_first(graph: Graph) -> tuple[Graph, int]:
    """The graph with all mere views of its inputs in front, and their number.

    A stretch that takes its weights out of a stacked array would hand back a cotangent
    of the size of the whole stack.
    """
    eqns = graph.jaxpr.eqns
    views = list(graph.views.values())
    others = [eqn for eqn in eqns if graph.views.keys().isdisjoint(eqn.outvars)]
    return Graph(graph.jaxpr.replace(eqns=[*views, *others])), len(views)


def beyond(graph: Graph, first: int) -> Graph:
    """What is left of a graph without its first operations."""
    return Graph(graph.stretch(first, len(graph)).jaxpr)


def segments_behind(first: int, stretches: Sequence[Stretch]) -> list[Stretch]:
    """Stretches of what is `beyond`, behind the first operations, which are stored."""
    moved = [replace(s, start=s.start + first, stop=s.stop + first) for s in stretches]
    return [Stretch(0, first, marked=False), *moved] if first else moved


def every(graph: Graph, n: int) -> list[Stretch]:
    """Stretches of n operations."""
    size = len(graph)
    return [Stretch(a, min(size, a + n)) for a in range(0, size, n)]


def least_peak(cutter: Cutter) -> Cut:
    """The cut with the lowest peak: the square root of the rule, for any graph."""
    low = 0
    best = _below(cutter, cutter.everything)
    assert best is not None
    while best.peak_bytes - low > max(1, best.peak_bytes // 128):
        found = _below(cutter, (low + best.peak_bytes) // 2)
        if found is None:
            low = (low + best.peak_bytes) // 2
        else:
            best = found
    return best


def _below(cutter: Cutter, limit: int) -> Cut | None:
    """Some cut with a peak of at most `limit`, keeping the least at every place."""
    last = len(cutter.places) - 1
    kept: list[float] = [0.0, *([float("inf")] * last)]
    came: list[int] = [0] * (last + 1)
    for b in range(1, last + 1):
        for a in range(b - 1, -1, -1):
            if cutter.held[cutter.places[b]] - cutter.held[cutter.places[a]] > limit:
                break
            way = cutter.options(a, b)[0]
            now = kept[a] + way.kept
            if now + way.inside <= limit and now < kept[b]:
                kept[b], came[b] = now, a
    if kept[last] == float("inf"):
        return None
    chain = [last]
    while chain[-1]:
        chain.append(came[chain[-1]])
    return _cut_of(cutter, [(a, b, 0) for a, b in pairwise(chain[::-1])])


def least_work_cut(cutter: Cutter, budget: int) -> Cut | None:
    """The cut of least work whose peak is within the budget, if there is one.

    A dynamic programme over places and kept bytes, these in `_BINS` parts rounded up:
    the best of the cuts considered, but for the rounding.
    """
    unit = max(1, -(-budget // _BINS))
    last = len(cutter.places) - 1
    work = np.full((last + 1, _BINS + 1), np.inf)
    came = np.zeros((last + 1, _BINS + 1, 3), np.int64)
    work[0, 0] = 0
    for b in range(1, last + 1):
        for a in range(b):
            for number, way in enumerate(cutter.options(a, b)):
                _relax(work, came, (a, b, number), way, unit)
    end = int(np.argmin(work[last]))
    if not np.isfinite(work[last, end]):
        return None
    chain: list[tuple[int, int, int]] = []
    place, at = last, end
    while place:
        a, before, number = map(int, came[place, at])
        chain.append((a, place, number))
        place, at = a, before
    return _cut_of(cutter, chain[::-1])


def _relax(
    work: np.ndarray,
    came: np.ndarray,
    move: tuple[int, int, int],
    way: SegmentOption,
    unit: int,
) -> None:
    """Try one way for the stretch from place `a` to `b`, for all bytes kept before."""
    a, b, number = move
    more, inside = -(-way.kept // unit), -(-way.inside // unit)
    most = _BINS - more - inside
    if most < 0:
        return
    before = np.arange(most + 1)
    cost = work[a, : most + 1] + way.work
    better = before[cost < work[b, more : more + most + 1]]
    work[b, better + more] = cost[better]
    came[b, better + more, 0] = a
    came[b, better + more, 1] = better
    came[b, better + more, 2] = number


def _cut_of(cutter: Cutter, choices: Sequence[tuple[int, int, int]]) -> Cut:
    kept = peak = work = 0
    stretches: list[Stretch] = []
    for a, b, number in choices:
        way = cutter.options(a, b)[number]
        kept += way.kept
        peak = max(peak, kept + way.inside)
        work += way.work
        stretches.append(cutter.stretch(a, b, way))
    return Cut(tuple(stretches), peak, work)


# Bytes ---------------------------------------------------------------------------
#
# Estimates for choosing. XLA fuses what is computed element by element, so that such a
# value takes memory only where something that is not fused reads or makes it.


def _is_heavy(eqn: Any) -> bool:
    """Whether an operation is one that XLA does not fuse with its neighbours."""
    reduces = eqn.primitive.name.startswith(("reduce_", "cum", "arg"))
    return reduces or is_a(eqn, Also.NOT_FUSED)


def _is_product(eqn: Any) -> bool:
    """Matrix products and convolutions: dear to compute, cheap to hold."""
    return is_a(eqn, Also.PRODUCT)


def _lasting_bytes(graph: Graph) -> dict[Any, int]:
    """For each value that takes memory, its bytes."""
    found: dict[Any, int] = {}
    for eqn in graph.jaxpr.eqns:
        if _is_heavy(eqn):
            made = [v for v in variables(eqn.invars) if v in graph.made]
            found.update((v, _variable_bytes(v)) for v in (*eqn.outvars, *made))
    return found


def _variable_bytes(variable: Any) -> int:
    """Bytes of a variable's value."""
    return size_of(variable) * getattr(variable.aval.dtype, "itemsize", 4)

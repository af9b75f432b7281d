"""Proof that the rows of a buffer are set in rising order, none of them twice.

Let `H` be one more than the last row that was set, zero before the first. For each
integer that the row numbers come from, a lower bound of its distance from `H` is kept,
block by block, until nothing changes:

    L1:  r = scatter b i y          needs i - H >= 0;   then H = i + 1
         j = i + 1                  j - H >= 0
         moves i <- j               i - H >= 0

What holds on a path that was not taken, or if a row was not set, is told apart by the
truth values that decided it (`_induction.Case`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from retape.engines.jaxpr.ir._flow_graph import Flow
from retape.engines.jaxpr.ir._ir import Atom, Block, Label, Var
from retape.engines.jaxpr.streams._induction import Case, Facts, Growth
from retape.engines.jaxpr.streams._row_updates import RowSet

FAR = 2**30
_STRIDE = 2**16
"""The furthest that an integer may go at once; so 32 bits last for 2**14 rows at least,
and for 2**30 that follow one another."""
_NEVER = -(2**40)
"""A distance of which nothing is known."""


@dataclass(frozen=True, slots=True)
class RowOf:
    """The row that is set: `base + shift`, if all facts hold."""

    row: RowSet
    base: Var
    shift: int
    least: int
    when: Facts


@dataclass(frozen=True, slots=True)
class _Known:
    """Distances from `H`; and whether it is still what it was at first."""

    distance: dict[Var, int]
    first: bool


def rows_of(sets: Sequence[RowSet], growth: Growth) -> list[RowOf] | None:
    """Where the rows are that a block sets, if all of them are known."""
    found = [_row_of(s, growth) for s in sets]
    return None if None in found else [r for r in found if r is not None]


def _row_of(found: RowSet, growth: Growth) -> RowOf | None:
    n = found.old.aval.shape[0]
    cases = growth.cases(found.index)
    cases = [c for c in cases if growth.possible(c.facts | found.when)]
    # A row far beyond the last one is not set, or the last one is.
    inside = [c for c in cases if c.base is not None or c.shift < n]
    if len(inside) != 1 or (found.clamps and len(cases) > 1):
        return None
    (case,) = inside
    if case.base is None:
        return None
    when = found.when if len(cases) == 1 else found.when | case.facts
    least = case.shift if case.least is None else min(case.least, case.shift)
    return RowOf(found, case.base, case.shift, least, when)


class Rising:
    """The analysis of one buffer.

    Args:
        flow: The program's flow graph.
        growth: What is known about the integers of each block.
        rows: The rows that each block sets, in turn.
        begun: `H` before the first of them.
    """

    def __init__(
        self,
        flow: Flow,
        growth: dict[Label, Growth],
        rows: dict[Label, list[RowOf]],
        begun: int,
    ) -> None:
        self.flow = flow
        self.growth = growth
        self.rows = rows
        self.begun = begun
        self.sources = self._sources()

    def holds(self) -> bool:
        """Tell whether no row can be set twice, nor one before the first."""
        entry = self.flow.solve(_Known({}, True), self._after, _join)
        return all(
            self._in_order(b, entry[b.label])
            for b in self.flow.blocks
            if b.label in entry
        )

    def _sources(self) -> set[Var]:
        """The integers that the row numbers come from."""
        todo = [r.base for rows in self.rows.values() for r in rows]
        found = set(todo)
        while todo:
            var = todo.pop()
            for block in self.flow.defined[var]:
                for case in self._assigned(block, var):
                    if case.base is not None and case.base not in found:
                        found.add(case.base)
                        todo.append(case.base)
        return found

    def _assigned(self, block: Block, var: Var) -> list[Case]:
        """The cases of an integer that a block assigns."""
        source: Atom = block.moves.get(var, var)
        made = self.growth[block.label].makers
        if source is var and var not in made:
            return []
        return self.growth[block.label].cases(source)

    # What holds ----------------------------------------------------------------------

    def _after(self, block: Block, known: _Known) -> _Known:
        rows = self.rows[block.label]
        own = {v for v in self.sources if block in self.flow.defined[v]}
        keeps = {v: [Case(frozenset(), v, 0)] for v in self.sources - own}
        cases = keeps | {v: self._assigned(block, v) for v in own}
        distance = {v: self._bound(block, rows, c, known) for v, c in cases.items()}
        found = {v: d for v, d in distance.items() if d > _NEVER // 2}
        return _Known(found, known.first and not rows)

    def _bound(
        self,
        block: Block,
        rows: Sequence[RowOf],
        cases: Sequence[Case],
        known: _Known,
        asked: Facts = frozenset(),
    ) -> int:
        """How far an integer is from `H` at least, after these rows were set or not."""
        growth = self.growth[block.label]
        bounds: list[int] = [] if cases else [_NEVER]
        for last, facts in _orders(rows):
            for case in cases:
                if growth.possible(facts | asked | case.facts):
                    bounds.append(self._distance(case, last, known))
        return min(bounds, default=FAR)

    def _distance(self, case: Case, last: RowOf | None, known: _Known) -> int:
        if abs(case.shift) > (FAR if case.base is None else _STRIDE):
            return _NEVER
        if case.base is None:
            first = known.first and last is None
            return case.shift - self.begun if first else _NEVER
        if last is None:
            before = known.distance.get(case.base, _NEVER)
        else:
            before = -last.shift - 1 if case.base is last.base else _NEVER
        # Before that row was set its number was not negative, as no row's is.
        least = before if last is None else before + 1
        if case.least is not None and least + case.least < 0:
            return _NEVER
        return max(before + case.shift, _NEVER)

    def _in_order(self, block: Block, known: _Known) -> bool:
        rows = self.rows[block.label]
        for i, row in enumerate(rows):
            for shift in {row.shift, row.least}:
                case = Case(frozenset(), row.base, shift)
                if self._bound(block, rows[:i], [case], known, row.when) < 0:
                    return False
        return True


def _orders(rows: Sequence[RowOf]) -> list[tuple[RowOf | None, Facts]]:
    """Which row may have been the last to be set, and what holds if it was."""
    found: list[tuple[RowOf | None, Facts]] = []
    later: Facts = frozenset()
    for row in reversed(rows):
        found.append((row, row.when | later))
        if not row.when:
            return found
        if len(row.when) == 1:
            later |= {(atom, not value) for atom, value in row.when}
    return [*found, (None, later)]


def _join(a: _Known, b: _Known, give_up: bool) -> _Known:
    both = {v: (d, b.distance[v]) for v, d in a.distance.items() if v in b.distance}
    kept = {
        v: min(pair) for v, pair in both.items() if not give_up or pair[0] <= pair[1]
    }
    return _Known(kept, a.first and b.first)


def last_row(flow: Flow, growth: dict[Label, Growth], block: Block, row: RowOf) -> Any:
    """The last row that a block can set, if it stands in a loop of known length."""
    item = flow.program.items[flow.place[block.label]]
    length = getattr(item, "length", None)
    if length is None or block not in item.items:  # type: ignore[union-attr]
        return None
    start, step = None, 0
    for other in flow.defined[row.base]:
        source: Atom = other.moves.get(row.base, row.base)
        cases = growth[other.label].cases(source)
        if len(cases) != 1:
            return None
        (case,) = cases
        if other is block and case.base is row.base:
            step = case.shift
        elif not flow.inside(other) and case.base is None and start is None:
            start = case.shift
        else:
            return None
    return None if start is None else start + row.shift + (length - 1) * max(step, 0)

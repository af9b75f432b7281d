"""The cheapest way to reverse a chain of unequal units within so many bytes.

With the state before unit s held and m bytes free, the units s, ..., t - 1 are reversed
in one of two ways, of which the cheapest is taken:

- *tape* unit s on the way, reverse the rest in what is left, then unit s. The state
  after s need not be held if the next unit is taped too;
- *split* at k: run s, ..., k - 1 without a tape, hold the state before k and reverse
  the rest in what is left; then reverse s, ..., k - 1 with all m bytes again.

This is the dynamic programme of Rotor (Beaumont, Eyraud-Dubois, Herrmann, Joly and
Shilova 2019), with bytes counted by union: what a state, a tape and the state before
have in common is held once. It is optimal among schedules that keep a state until its
last use. Sizes are rounded up to the levels of the table, so the budget is kept.

The table is bounded: where the state before s is held its costs are stored for later
ends alone, and those of the other case, which only the unit before asks for, are
computed once more for the one end that a descent has. With both for all pairs, 50 units
took 42 MB where they take 8, and 25 units 11 MB where they take 2.5.

Beside it stand `schedule/_chain`, which tapes whole stages and not single units and
counts every array by itself (its sizes are known, so its optimum is exact), and
`engines/jaxpr/layers/remat/_choose_segments`, where a stretch is run again only once.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from retape.engines.eager.analysis._unit_sizes import Unit
from retape.engines.eager.trace._report import Descent

LARGEST = 60_000_000
"""Entries looked at by the programme: about a second."""
_FEWEST_LEVELS, _MOST_LEVELS = 64, 2000
# The table takes no more than a quarter of the budget, and always may take so much.
_LEAST_BYTES, _MOST_BYTES = 1_150_000, 8_000_000
_TABLE_SHARE = 4
# NumPy adds parts of arrays in three buffers of 8,192 numbers each. For each pair of
# units there are a width and its levels.
_BUFFERS, _PAIR = 98_304, 16
# A unit and the state before it, of ten slots: with 40 of them 38 kB.
_UNIT = 1_000
_COST = np.float32


class Optimum:
    """The table of least costs, and the descents that attain them.

    Args:
        units: The chain.
        widths: `widths[s][k]`, bytes of the state before k not in the state before s.
        budget: Bytes.
        largest: Entries to look at; with fewer the levels are coarser.
        overhang: Bytes that the program's own run holds beyond the units' peaks.
        table: The most bytes that the table may take, in next to no room.
        copies: For each unit, the cost of a copy of the state before it, if states are
            in a store: one when it is put there, and one when it is run from.
        tape_copies: For each unit, the cost of putting what the program's own run tapes
            into the store and of reading it.
        held: Units of which the program's own run, which is over, holds the state
            before; it tapes none.

    Attributes:
        cost: Of all that is run again, and of copies; infinite if there is no room.

    Examples:
        >>> unit = Unit(1.0, 1.0, 1.0, 2, 2, 1, 1, 3, 4, 0)
        >>> chain = Optimum([unit] * 4, [[1] * 5] * 5, budget=8)
        >>> chain.cost
        2.0
        >>> [(each.start, each.stop, each.taped) for each in chain.descents()]
        [(0, 4, (2, 3)), (0, 2, (0, 1))]
    """

    def __init__(
        self,
        units: Sequence[Unit],
        widths: Sequence[Sequence[int]],
        budget: int,
        largest: int = LARGEST,
        overhang: int = 0,
        table: int = _MOST_BYTES,
        copies: Sequence[float] = (),
        tape_copies: Sequence[float] = (),
        held: Sequence[int] = (),
    ) -> None:
        self._held = held
        self.overhang = overhang
        self._tape_copies = np.array(tape_copies, dtype=_COST)
        self._copies = np.array(copies or [0.0] * len(units), dtype=_COST)
        self._copies[:1] = 0.0  # where the program begins nothing is stored
        self.units, self.widths, self.budget = units, widths, budget
        n = len(units)
        most = max(
            _FEWEST_LEVELS,
            min(_MOST_LEVELS, 6 * largest // max(1, n) ** 3, _levels(n, budget, table)),
        )
        self._level = _choose_level(units, widths, budget, most)
        self._count = budget // self._level + 1  # of rooms
        self._sums = np.cumsum([0.0, *(unit.advance for unit in units)])
        self._wide = -(-np.asarray(widths, dtype=np.int64) // self._level)
        # By unit s, and by end t > s and room, where the state before s is held.
        self._least: list[Any] = [None] * n
        after = np.zeros((1, self._count), dtype=_COST)
        for s in reversed(range(n)):
            after = self._fill(s, after)
        del after
        shape = (n + 1, self._count)
        self._first = np.full(shape, np.inf, dtype=_COST)
        self._first_after = np.full(shape, np.inf, dtype=_COST)
        self._first_after[n] = 0.0
        for s in reversed(held or range(n)):
            self._choose_held(s) if held else self._fill_first(s)
        self.cost = float(self._first[0, -1]) if n else 0.0

    def descents(self) -> list[Descent]:
        """The descents of an optimal schedule, the program's own run first.

        There is none where the cost is infinite.
        """
        found: list[Descent] = []
        last = self._count - 1
        stack = [(0, len(self.units), last, -1)] if self.units else []
        while stack:
            s, t, room, parent = stack.pop()
            descent, inner = self._descend(s, t, room, parent)
            stack += [(*segment, len(found)) for segment in inner]
            found.append(descent)
        return found

    def _fill(self, s: int, rest: Any) -> Any:
        """The costs of all chains that begin at unit s; later ones are there.

        Args:
            rest: By end from s + 1 on and room, the cost from s + 1 after a tape.

        Returns:
            The same for s, where the state before s may be held.
        """
        unit, n = self.units[s], len(self.units)
        waiting = np.array([each.cotangent for each in self.units[s:]])
        need = [self._need(s, t, False) for t in range(s + 1, n + 1)]
        cost = np.full((n - s, 1), unit.both, dtype=_COST)
        cost[0] = unit.tape
        table = self._least[s] = np.full((n - s, self._count), np.inf, dtype=_COST)
        _lower(table, rest, self._up(unit.tape_bytes), cost, need)
        peak = 0
        for k in range(s + 1, n):
            peak = self._advance_peak(peak, s, k)
            advance = _COST(self._sums[k] - self._sums[s] + self._stored(s, k))
            before = table[k - s - 1] + advance
            needs = self._up(peak + waiting[k - s :]).tolist()
            wide = int(self._wide[s, k])
            _lower(table[k - s :], self._least[k], wide, before, needs)
        return self._after(s, rest, cost, need, table)

    def _after(
        self, s: int, rest: Any, cost: Any, need: Sequence[int], held: Any
    ) -> Any:
        """The costs from s on after a tape; by end from s on and room."""
        unit = self.units[s]
        after = np.full((len(held) + 1, self._count), np.inf, dtype=_COST)
        after[0] = 0.0
        later = after[1:]
        hold = int(self._up(unit.hold_bytes))
        need = [each + hold for each in need]
        _lower(later, rest, self._up(unit.more_bytes), cost, need)
        self._hold(later, held, s)
        return after

    def _after_until(self, s: int, t: int) -> dict[int, Any]:
        """By unit from s to t and room, the cost up to t after a tape."""
        rest = np.zeros(self._count, dtype=_COST)
        found = {t: rest}
        for k in reversed(range(s, t)):
            unit = self.units[k]
            cost = _COST(unit.tape if k + 1 == t else unit.both)
            held = self._least[k][t - k - 1 : t - k]
            need = [self._need(k, t, False)]
            # A copy: the row of no end goes.
            rest = found[k] = self._after(k, rest[None], cost, need, held)[1].copy()
        return found

    def _fill_first(self, s: int) -> None:
        """The same for chains up to the end, run by the program at no cost."""
        unit, n, row = self.units[s], len(self.units), self._first[s : s + 1]
        need = self._need(s, n, True)
        self._tape_first(row, s, unit.tape_bytes, need)
        peak = lingering = 0
        for k in range(s + 1, n):
            peak = self._advance_peak(peak, s, k)
            lingering = max(lingering, self.units[k - 1].lingering)
            held = self._least[s][k - s - 1] + _COST(self._stored(s, k))
            room = self._up(peak + self.overhang + lingering)
            wide = int(self._wide[s, k])
            _lower(row, self._first[k : k + 1], wide, held, [room])
        after = self._first_after[s : s + 1]
        need += int(self._up(unit.hold_bytes))
        self._tape_first(after, s, unit.more_bytes, need)
        self._hold(after, row, s)

    def _choose_held(self, s: int) -> None:
        """The same where that run is over: which of its states stay is left to choose.

        One that stays takes room, and nothing is run for it.
        """
        row, n = self._first[s : s + 1], len(self.units)
        row[:] = self._least[s][n - s - 1]
        for k in self._held:
            if k > s:
                before, wide = self._least[s][k - s - 1], int(self._wide[s, k])
                _lower(row, self._first[k : k + 1], wide, before)

    def _keep_held(self, room: int) -> tuple[Descent, list[tuple[int, int, int]]]:
        """The states that stay, and the segments with rooms between them."""
        s, n, inner = 0, len(self.units), list[tuple[int, int, int]]()
        while self._first[s, room] < self._least[s][n - s - 1][room]:
            ways = {
                k: self._first[k, room - wide] + self._least[s][k - s - 1][room]
                for k in self._held
                if k > s and (wide := int(self._wide[s, k])) <= room
            }
            k = min(ways, key=ways.__getitem__)
            inner.append((s, k, room))
            s, room = k, room - int(self._wide[s, k])
        stores = tuple(k for _, k, _ in inner)
        return Descent(0, n, stores, (), -1), [*inner, (s, n, room)]

    def _tape_first(self, into: Any, s: int, nbytes: int, need: int) -> None:
        """Tape a unit in the program's own run: in memory, or into the store."""
        rest = self._first_after[s + 1 : s + 2]
        _lower(into, rest, int(self._up(nbytes)), _FREE, [need])
        if len(self._tape_copies):
            _lower(into, rest, 0, self._tape_copies[s], [need])

    def _hold(self, after: Any, held: Any, s: int) -> None:
        """Hold the state before s where that is cheaper."""
        shift = int(self._up(self.units[s].hold_bytes))
        _lower(after, held, shift, self._copies[s])

    def _descend(
        self, s: int, t: int, room: int, parent: int
    ) -> tuple[Descent, list[tuple[int, int, int]]]:
        """One run from s to t, and the segments with rooms that it leaves."""
        first = parent < 0
        if first and self._held:
            return self._keep_held(room)
        at, held, stores, taped = s, True, list[int](), list[int]()
        away = list[int]()
        inner: list[tuple[int, int, int]] = []
        after = self._first_after if first else self._after_until(s, t)
        while at < t:
            unit = self.units[at]
            if held and at > s and self._copies.any():
                # In a store, also what is not run from: it takes no room on a tape.
                stores += [at] if at not in stores else []
            least = self._first[at] if first else self._least[at][t - at - 1]
            more = self._up(unit.tape_bytes if held else unit.more_bytes)
            cost = _FREE if first else _COST(unit.tape if at + 1 == t else unit.both)
            value = least[room] if held else after[at][room]
            left = room - more
            # The sums are the table's own, so they are compared for equality.
            need = self._need(at, t, first)
            need += 0 if held else self._up(unit.hold_bytes)
            if min(left, room - need) >= 0 and value == after[at + 1][left] + cost:
                taped.append(at)
                at, room, held = at + 1, left, False
                continue
            if first and self._is_put_away(at, room - need, room, value):
                taped.append(at)
                away.append(at)
                at, held = at + 1, False
                continue
            if not held:
                room, held = room - self._up(unit.hold_bytes), True
                continue
            k = self._split(at, t, room, first)
            stores += [at] if at > s and at not in stores else []
            inner.append((at, k, room))
            at, room = k, room - int(self._wide[at, k])
        found = tuple(stores), tuple(taped), parent, (), tuple(away)
        return Descent(s, t, *found), inner

    def _is_put_away(self, s: int, spare: int, room: int, value: Any) -> bool:
        """Whether the tape of a unit goes into the store in the best schedule."""
        if not len(self._tape_copies) or spare < 0:
            return False
        return value == self._first_after[s + 1][room] + self._tape_copies[s]

    def _need(self, s: int, t: int, first: bool) -> int:
        """Room that taping and reversing a unit takes, the state before it held."""
        unit = self.units[s]
        beside = self.units[t - 1].cotangent
        if first:
            beside = unit.lingering + self.overhang
        return int(self._up(max(unit.reverse_peak, unit.tape_peak + beside)))

    def _split(self, s: int, t: int, room: int, first: bool) -> int:
        """The best unit before which to split."""
        best, chosen = float("inf"), s + 1
        for k in range(s + 1, t):
            left = room - int(self._wide[s, k])
            if left < 0:
                continue
            rest = self._first[k] if first else self._least[k][t - k - 1]
            cost = float(rest[left]) + float(self._least[s][k - s - 1][room])
            cost += 0.0 if first else float(self._sums[k] - self._sums[s])
            cost += self._stored(s, k)
            if cost < best:
                best, chosen = cost, k
        return chosen

    def _stored(self, s: int, k: int) -> float:
        """Copies for a split at k: its state is put away, the one before s read."""
        return float(self._copies[k]) + float(self._copies[s])

    def _advance_peak(self, peak: int, s: int, k: int) -> int:
        """The most bytes while the units from s to k are run without a tape."""
        passed = self.widths[s][k - 1] if k - 1 > s else 0
        return max(peak, self.units[k - 1].advance_peak + passed)

    def _up(self, nbytes: Any) -> Any:
        """Levels that hold so many bytes."""
        return -(-nbytes // self._level)


_FREE = _COST(0.0)


def _lower(
    costs: Any, rest: Any, shift: int, more: Any, needs: Sequence[int] = ()
) -> None:
    """Lower `costs[r, m]` to `rest[r, m - shift] + more[r, m]` where m is enough.

    Args:
        costs: By row and room; infinite where nothing is known yet.
        rest: Costs with what is left of a room.
        shift: What is taken of it.
        more: A cost, one for each row or one for each room.
        needs: For each row, the smallest room that is enough.
    """
    size = costs.shape[-1]
    if shift < size:
        by_room = more.ndim == 1
        way = rest[:, : size - shift] + (more[shift:] if by_room else more)
        for row, need in enumerate(needs):
            if need > shift:
                way[row, : need - shift] = np.inf
        np.minimum(costs[:, shift:], way, out=costs[:, shift:])


def most_units(nbytes: int, most: int) -> int:
    """Of how many units, up to some, there is room for a table of the fewest levels."""
    for count in range(most, 0, -1):
        if _levels(count, 0, nbytes - _UNIT * count) >= _FEWEST_LEVELS:
            return count
    return 0


def _levels(count: int, budget: int, table: int) -> int:
    """Levels of the table that there is room for."""
    nbytes = max(_LEAST_BYTES, min(_MOST_BYTES, budget // _TABLE_SHARE))
    nbytes = min(nbytes, table) - _BUFFERS - _PAIR * count**2
    # Half of the pairs, and three rows of all units beside them.
    rows = count * (count + 1) // 2 + 3 * count
    return nbytes // (np.dtype(_COST).itemsize * max(1, rows))


def _choose_level(
    units: Sequence[Unit], widths: Sequence[Sequence[int]], budget: int, most: int
) -> int:
    """Bytes of a level: of a few sizes, the one that rounding up wastes least on."""
    finest = max(1, -(-budget // most))
    sizes = [unit.more_bytes for unit in units]
    sizes += [widths[k][k + 1] for k in range(len(units))]
    sizes = [size for size in sizes if size]
    candidates = {finest}
    for size in set(sizes):
        parts = size // finest
        candidates |= {-(-size // p) for p in (parts, (parts + 1) // 2) if p}
    return min(
        (level for level in sorted(candidates) if finest <= level <= 2 * finest),
        key=lambda level: sum(-size % level for size in sizes) + level,
        default=finest,
    )

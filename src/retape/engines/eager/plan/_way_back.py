"""A plan over the units of a run, and the way back through its descents.

The first descent is the program's own run: the values that autograd saves are held in
the units that it tapes and let go in the others, and the state before each stored unit
is held. When the backward comes to a unit that is not taped, the descent that tapes it
is run from the state that it starts at. If the program itself holds more than there is
room for, tapes are let go, each for a descent more. If the run leaves the plan, the
rest is done without one: every value can still be recomputed.

A backward and its rehearsal ask the same of a plan, one with tensors in its hands and
one with their numbers. So they cannot come to different answers. Plans are compared by
their rehearsals: the dynamic programme adds up costs of units, each run by itself, and
a backward runs several at once, finds values there that another part of the plan holds,
and reads less of a state than crosses its position.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from sys import maxsize
from typing import Any

from retape.engines.eager.analysis._measured import Measured
from retape.engines.eager.analysis._uses import Slots
from retape.engines.eager.keep._place_snapshot import put_away
from retape.engines.eager.trace._report import Descent
from retape.engines.eager.trace._step import steps_making
from retape.engines.eager.trace._trace import Trace


@dataclass(slots=True)
class UnitSchedule:
    """Descents over the units of one run.

    Attributes:
        descents: The program's own run first.
        cuts: Positions of the units as far as they are known.
        states: At each cut, the slots made before and used after.
        broken: The run has left the plan.
        excess: Bytes that it held beyond what there was room for.
        overhang: Bytes that the program held itself then, if that was while it ran.
        on_leaving: Called once, with this, when the run leaves the plan.
    """

    descents: Sequence[Descent]
    cuts: list[int] = field(default_factory=list[int])
    states: Sequence[Slots] = ()
    broken: bool = False
    excess: int = 0
    overhang: int = 0
    on_leaving: Callable[[Any], None] | None = None

    def leave(self, excess: int = 0, overhang: int = 0) -> None:
        """The rest is done without this plan; whoever made it is told."""
        if not self.broken:
            self.broken = True
            self.lack(excess, overhang)
            if self.on_leaving is not None:
                self.on_leaving(self)

    def lack(self, excess: int, overhang: int) -> None:
        """There was less room than the plan has counted on."""
        self.excess = max(self.excess, excess)
        self.overhang = max(self.overhang, overhang)

    def put_away(self, trace: Trace) -> None:
        """Move what snapshots hold into the store, if there is one."""
        put_away(trace, trace.snapshots)

    def unit_at(self, position: int) -> int:
        """The unit that a position lies in."""
        return bisect_right(self.cuts, position) - 1

    def stop_of(self, unit: int) -> int:
        """The step behind a unit; what is saved at the end of a run is the last's."""
        return self.cuts[unit + 1] if unit + 1 < len(self.cuts) else maxsize


def owner_of(descents: Sequence[Descent], unit: int) -> int:
    """The number of the descent that tapes a unit."""
    return next(k for k, each in enumerate(descents) if unit in each.taped)


def path_to(
    descents: Sequence[Descent], unit: int, is_stored: Callable[[int], bool]
) -> list[Descent]:
    """The descents that have to run for the tape of a unit, the first one first.

    Args:
        descents: The plan.
        unit: The unit.
        is_stored: Tells whether the state before a unit is held.

    Examples:
        The state before unit 2 has been stored by a descent from the start.

        >>> own = Descent(0, 4, (), (3,), -1)
        >>> plan = [own, Descent(0, 3, (1,), (2,), 0), Descent(1, 2, (), (1,), 1)]
        >>> [each.start for each in path_to(plan, 1, lambda unit: unit in (0, 1))]
        [1]
        >>> [each.start for each in path_to(plan, 1, lambda unit: unit == 0)]
        [0, 1]
    """
    path = [descents[owner_of(descents, unit)]]
    while not is_stored(path[0].start):
        path.insert(0, descents[path[0].parent])
    return path


def left_from(descents: Sequence[Descent], start: int, unit: int) -> list[Descent]:
    """The descents from a state that are to come, once a unit has been reversed."""
    return [each for each in descents[1:] if each.start == start and each.stop <= unit]


def tapes_in(
    left: Sequence[Descent],
    state: Slots | set[int],
    tape: Callable[[int], Iterable[int]],
) -> list[int] | None:
    """The units that a state has the tapes of, if it is for no more.

    Args:
        left: The descents from the state that are to come.
        state: The slots of the state.
        tape: The slots of a unit's tape.

    Returns:
        `None` if one of the descents has to run.
    """
    units = [each for descent in left for each in descent.taped]
    if any(each.stores for each in left):
        return None
    return units if all(state.issuperset(tape(each)) for each in units) else None


def rehearse(measured: Measured, descents: Sequence[Descent]) -> int:
    """The cost of all that a plan runs again, if it is followed to its end."""
    return _Rehearsal(measured, descents).cost


class _Rehearsal:
    """What is held where, while the backward goes from unit to unit.

    Attributes:
        cost: Of what has been run again so far.
    """

    def __init__(self, measured: Measured, descents: Sequence[Descent]) -> None:
        self._measured, self._descents = measured, descents
        self._saved, self._reads = list(measured.tapes), list(measured.reads)
        self.cost, count = 0, len(measured.units)
        # By unit, what the program's own run holds, and what has been run again.
        self._own = {unit: self._saved[unit] for unit in descents[0].taped}
        self._tapes: dict[int, Slots] = {}
        self._states: dict[int, Slots] = {0: frozenset()}
        ends = [*descents[0].stores, count]
        for unit, end in zip(ends, ends[1:], strict=False):
            self._states[unit] = self._read(unit, end)
        self._part_with_states(count)
        for unit in reversed(range(count)):
            # The saved tensors of later units are gone, and their values with them.
            self._tapes = {u: slots for u, slots in self._tapes.items() if u <= unit}
            if not self._saved[unit] <= self._held():
                self._fetch(unit)

    def _read(self, unit: int, end: int) -> Slots:
        """The slots of the state before a unit that steps up to another unit read."""
        measured = self._measured
        cuts, state = measured.cuts, measured.states[unit]
        reads = self._reads[cuts[unit] : cuts[end]]
        return state & frozenset(slot for each in reads for slot in each)

    def _held(self) -> set[int]:
        found: set[int] = set()
        there = *self._own.values(), *self._tapes.values(), *self._states.values()
        return found.union(*there)

    def _fetch(self, unit: int) -> None:
        tape = self._saved[unit]
        kept = tape & self._held()
        self._own = {u: slots for u, slots in self._own.items() if u <= unit}
        self._states = {u: slots for u, slots in self._states.items() if u <= unit}
        self._tapes[-1] = kept
        for descent in path_to(self._descents, unit, self._states.__contains__):
            self._descend(descent, unit)
        del self._tapes[-1]
        self._part_with_states(unit)

    def _descend(self, descent: Descent, last: int) -> None:
        tapes = {u: self._saved[u] for u in descent.taped if u <= last}
        states = {
            u: self._state(u, last)
            for u in descent.stores
            if u <= last and u not in self._states
        }
        self._run(Slots().union(*tapes.values(), *states.values()))
        self._tapes.update(tapes)
        self._states.update(states)

    def _state(self, unit: int, last: int) -> Slots:
        saved = Slots().union(*self._saved[unit : last + 1])
        return self._read(unit, last + 1) | (saved & self._measured.states[unit])

    def _run(self, wanted: Iterable[int]) -> None:
        """Run the steps that make what is not held."""
        measured, reads = self._measured, self._reads.__getitem__
        found = steps_making(wanted, self._held(), measured.producer, reads)
        self.cost += sum(measured.costs[step] for step in found)

    def _part_with_states(self, unit: int) -> None:
        """Give up the states that no descent of an earlier unit has to run from."""
        for start in [each for each in self._states if each]:
            left = left_from(self._descents, start, unit)
            tapes = tapes_in(left, self._states[start], self._saved.__getitem__)
            if tapes is not None:
                self._tapes.update({each: self._saved[each] for each in tapes})
                del self._states[start]

"""A plan rehearsed on a record: the cost of what its backward will run again.

The dynamic programme adds up costs of units, each run by itself. A backward runs
several at once, finds values there that another part of the plan holds, and reads less
of a state than crosses its position. So plans are compared by what they will do: the
same descents as in `PlannedSweep`, on slots instead of tensors.
"""

from collections.abc import Iterable, Sequence

from retape.engines.eager.analysis._measured import Measured
from retape.engines.eager.analysis._uses import Slots
from retape.engines.eager.plan._way_back import path_to, tapes_in
from retape.engines.eager.trace._schedule import Descent
from retape.engines.eager.trace._step import steps_making


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
            state, tape = self._states[start], self._saved.__getitem__
            tapes = tapes_in(self._descents, start, unit, state, tape)
            if tapes is not None:
                self._tapes.update({each: self._saved[each] for each in tapes})
                del self._states[start]

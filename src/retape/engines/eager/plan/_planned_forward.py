"""A run that follows a plan made beforehand, of an earlier run or an estimate.

Where its first units are others than those that were measured, it may be another
program, with another plan; where it leaves that, rules lead the rest. Where it holds a
little more than there is room for, tapes are let go, each for a descent more, and
states, for longer ones.
"""

import math
from collections.abc import Iterator, Set
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from retape.engines.eager._limits import Limits
from retape.engines.eager.analysis._measured import outside_bytes
from retape.engines.eager.analysis._uses import Slots
from retape.engines.eager.keep._keeper import Keeper
from retape.engines.eager.keep._place_snapshot import (
    PartBegin,
    merge_snapshot,
    snapshot_here,
)
from retape.engines.eager.plan._expected_plan import ExpectedPlan
from retape.engines.eager.trace._geometry import storage_refcount
from retape.engines.eager.trace._run import Run
from retape.engines.eager.trace._step import Snapshot, steps_making

# A program that holds so much more is another than was measured. One that held what
# each of its layers reads ran 189 operators again where rules run 129.
_MOST_GIVEN_UP = 1 / 8


class _Part(NamedTuple):
    """What a run that follows a plan may let go of: a unit's tape, or its state."""

    unit: int
    slots: set[int]
    state: Snapshot | None = None


class PlannedKeeper(Keeper):
    """Keeps what the plan's first descent says."""

    def __init__(self, run: Run, limits: Limits, plan: ExpectedPlan) -> None:
        super().__init__(run, limits)
        self.plan = plan
        self._taped = True
        self._begin = PartBegin(0, None)
        # What autograd saves behind a cut for the unit before: to hold, to let go.
        self._hold_late: Slots = frozenset()
        self._late: Slots = frozenset()
        self._given_up = set[int]()  # of tapes, since the program held more
        self._take_up()

    def relieve(self) -> None:
        """At a cut, go on to the next unit; where bytes run out, let go what is not
        taped.
        """
        if not self.plan.broken:
            self._run.note_peak()
            self._follow()
        if self.plan.broken:
            super().relieve()
            return
        if not self._taped:
            self._drop_unit()
        self._drop_late()
        self._wake_up_in_time()
        self._leave_room(self._need() - self._late_bytes())

    def make_room(self, nbytes: int) -> None:
        """Let values go for an operator, unless a plan has counted what it takes."""
        self._drop_late(0)
        if self.plan.broken or len(self.plan.cuts) == 1:  # it may be another program
            super().make_room(nbytes)

    def _come_to(self, unit: int) -> None:
        """The program comes to a unit of the plan."""
        plan, trace = self.plan, self._run.trace
        if not self._taped:
            self._drop_unit()
        self._drop_late()
        self._prune(plan.states[plan.unit_at(trace.opened.position)])
        plan.cuts.append(len(trace.steps))
        self._taped = unit in plan.descents[0].taped
        self._begin = PartBegin.here(trace)
        self._sort_late(unit)
        if unit in plan.descents[0].stores:
            snapshot_here(self._run)
        plan.put_away(trace)  # what the program has let go of since the last, too
        self._wake_up_in_time()

    def finish(self) -> None:
        """The end of the run: the last unit may be one that is not taped."""
        plan, run = self.plan, self._run
        if not plan.broken:
            count = len(plan.measured.units)
            if len(plan.cuts) < count or not plan.measured.agrees(count, run):
                self.leave()
            else:
                self._part_from_program()
        super().finish()
        if not plan.broken:
            in_store = run.trace.held.elsewhere is not None
            run.tally.schedule = partial(plan.as_written, in_store)

    def put_away(self) -> None:
        """Move what snapshots hold into the store, where the plan says."""
        if self.plan.broken:
            super().put_away()
        else:
            self.plan.put_away(self._run.trace)

    def _leave_room_for_waiting(self) -> None:
        """A plan has counted what waits."""
        if self.plan.broken:
            super()._leave_room_for_waiting()

    def _part_from_program(self) -> None:
        """Copy what the program holds, too: it may overwrite it. There is room for it.

        Unless the program holds more than it did: what is its own cannot be let go.
        """
        plan, run, held = self.plan, self._run, self._run.trace.held
        found = held.storages.items()
        shared = [
            slot
            for slot, storage in found
            if storage_refcount(storage) > 1
            and (not run.trace.noted(slot).received or run.trace.last_read[slot] >= 0)
        ]
        outside = outside_bytes(run) + sum(run.trace.nbytes[slot] for slot in shared)
        if outside > plan.outside:
            self.leave(outside - plan.outside)
            return
        for slot in shared:
            run.trace.hold_copy(slot, held.storages[slot])

    def leave(self, excess: int = 0, overhang: int = 0) -> None:
        """Do without the plan from here on."""
        self.plan.leave(excess, overhang)
        self._run.trace.next_cut = self._next_count

    def _take_up(self) -> None:
        """The program may be the one that was measured: its first unit will show."""
        plan, memory = self.plan, self._limits.memory
        measured = plan.measured
        self.leave_to_record(0 if memory is None else measured.record_in(memory))
        plan.states, plan.cuts, self._seen = measured.states, [0], 0
        self._taped = 0 in plan.descents[0].taped
        self._wake_up_in_time()

    def _follow(self) -> None:
        """Look whether the next unit begins here, or the program is another one."""
        plan, trace, measured = self.plan, self._run.trace, self.plan.measured
        unit = len(plan.cuts)
        due = unit < len(measured.units) and len(trace.steps) >= measured.cuts[unit]
        if not due and (trace.counter.live <= trace.limit or self._is_same_so_far()):
            return
        if due and measured.agrees(unit, self._run):
            self._come_to(unit)
        elif unit == 1 and plan.turn(len(trace.steps)):
            self._take_up()
            self._follow()
        else:
            self.leave()

    def _is_same_so_far(self) -> bool:
        """Whether what was made since the last look is what was measured.

        Asked where bytes run short: what the next operator takes is read off the plan,
        and that of another program let one of linear layers take 1,433 bytes more than
        its budget of 40,039.
        """
        trace, measured = self._run.trace, self.plan.measured
        made, self._seen = range(self._seen, len(trace.nbytes)), len(trace.nbytes)
        return len(trace.nbytes) <= len(measured.nbytes) and all(
            trace.nbytes[slot] == measured.nbytes[slot]
            and trace.producer[slot] == measured.producer[slot]
            for slot in made
        )

    def _need(self) -> int:
        """Bytes that the operator about to run may add."""
        needs, position = self.plan.measured.needs, len(self._run.trace.steps)
        return needs[position] if position < len(needs) else 0

    def _leave_room(self, need: int) -> None:
        """The program may hold values beyond their last use, which no plan knows of.

        Then tapes and states are let go that cost least to run again. A U-Net whose
        levels are local variables held 11 kB too much: it ran 1.21 of its forward again
        when rules led the rest of it.
        """
        trace = self._run.trace
        if trace.counter.live + need > trace.memory:
            trace.held.settle()
        excess = math.ceil(trace.counter.live + need - trace.memory)
        if excess <= 0:
            return
        overhang = max(excess, outside_bytes(self._run))
        self.plan.lack(excess, overhang)
        while trace.counter.live + need > trace.memory:
            if not self._give_up_part(trace.counter.live + need - trace.memory):
                break
        else:
            return
        self.leave(excess, overhang)
        while trace.counter.live + need > trace.memory:
            if not self._rules.free_some():
                break
        super().relieve()

    def _give_up_part(self, excess: float) -> bool:
        """Let go of the tape of one unit or the state before it; whether there was any.

        Args:
            excess: Bytes that are to be let go; beyond them a part gains nothing.
        """
        trace, gone = self._run.trace, self._given_up
        storages = dict(trace.held.storages.items())
        best, chosen = math.inf, None
        before = self._cost_of(gone, storages.keys())
        most = _MOST_GIVEN_UP * trace.memory
        for part in self._parts():
            gain = sum(
                trace.nbytes[slot]
                for slot in part.slots & storages.keys()
                if trace.held.counts[slot] == 1
                and storage_refcount(storages[slot]) == 1
            )
            if gain and sum(trace.nbytes[slot] for slot in gone | part.slots) <= most:
                there = storages.keys() - part.slots
                more = self._cost_of(gone | part.slots, there) - before
                cost = more / min(gain, excess)
                if cost < best:
                    best, chosen = cost, part
        storages.clear()
        if chosen is None:
            return False
        if chosen.state is None:
            for slot in chosen.slots:
                trace.drop_from_tail(slot)
            self.plan.run_again(chosen.unit)
        else:
            place = trace.snapshots.index(chosen.state)
            before_it = trace.snapshots[place - 1]
            merge_snapshot(trace, before_it, trace.snapshots.pop(place))
            start = self.plan.unit_at(before_it.position)
            self.plan.run_from(start, chosen.unit)
        gone |= chosen.slots
        self.relieved = True
        return True

    def _parts(self) -> Iterator[_Part]:
        """What may be let go of: of units that are over, tapes and states."""
        plan, trace = self.plan, self._run.trace
        for unit in plan.descents[0].taped:
            if unit < len(plan.cuts) - 1:
                yield _Part(unit, self._only_for(unit))
        if trace.held.elsewhere is None:  # else they take no memory
            for left, state in pairwise(trace.snapshots[:-1]):
                made = {s for s in state.slots if trace.producer[s] >= left.position}
                yield _Part(plan.unit_at(state.position), made, state)

    def _cost_of(self, slots: Set[int], there: Set[int]) -> int:
        """What running again for some slots costs, where others are there."""
        measured = self.plan.measured
        reads = measured.reads.__getitem__
        steps = steps_making(slots, there, measured.producer, reads)
        return sum(measured.costs[step] for step in steps)

    def _only_for(self, unit: int) -> set[int]:
        """What the tail holds for a unit, and for no other one that is taped."""
        tapes, steps = self.plan.measured.tapes, self._run.trace.tail.steps
        own = {slot for slot in tapes[unit] if slot in steps}
        return own.difference(
            *(tapes[u] for u in self.plan.descents[0].taped if u != unit)
        )

    def _wake_up_in_time(self) -> None:
        """At the next unit, or before an operator that takes more than any before."""
        plan, trace = self.plan, self._run.trace
        measured, unit = plan.measured, len(plan.cuts)
        position, count = len(trace.steps), len(measured.units)
        cut = measured.cuts[unit] if unit < count else len(measured.needs)
        large = (
            step
            for step in range(position + 1, cut)
            if measured.needs[step] > trace.largest
        )
        end = cut if unit < count else float("inf")
        trace.next_cut = position + 1 if self._late else next(large, end)

    def _drop_unit(self) -> None:
        """Let go of what autograd saved since the unit began."""
        self.relieved |= self._begin.let_go(self._run.trace, self._hold_late)

    def _sort_late(self, unit: int) -> None:
        """Note what autograd is about to save for the unit before the one that begins.

        It saves results when an operator has returned, behind the cut.
        """
        measured = self.plan.measured
        taped = unit - 1 in self.plan.descents[0].taped
        self._hold_late = measured.late[unit] if taped else frozenset()
        self._late = frozenset() if taped else measured.alone[unit]

    def _late_bytes(self) -> int:
        """Bytes that will be let go before the operator about to run."""
        measured, trace = self.plan.measured, self._run.trace
        if not self._late:
            return 0
        unit = measured.units[len(self.plan.cuts) - 1]
        return 0 if unit.lingering else sum(trace.nbytes[each] for each in self._late)

    def _drop_late(self, wait: int = 1) -> None:
        """Let go of what was saved behind the cut for a unit that is not taped."""
        trace = self._run.trace
        if self._late and len(trace.steps) >= self.plan.cuts[-1] + wait:
            for slot in self._late:
                if slot in trace.tail.steps:
                    trace.drop_from_tail(slot)
                    self.relieved = True
            self._late = frozenset()

    def _prune(self, state: Slots) -> None:
        """Let the open snapshot's slots go that nothing recomputed will read."""
        trace = self._run.trace
        for slot in trace.opened.slots - state:
            trace.opened.slots.discard(slot)
            trace.held.release(slot)

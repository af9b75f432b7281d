"""A run that follows a plan made beforehand: what to hold where.

A plan is a list of descents over units. The first is the program's own run: the values
that autograd saves are held in the units that it tapes and let go in the others, and
the state before each stored unit is held. When the backward comes to a unit that is not
taped, the descent that tapes it is run from the state that it starts at. All of it is
below the rules of the general engine: if a program leaves the plan, or holds more than
there is room for, the rest is done without one, and every value can still be
recomputed.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from sys import maxsize

from retape.engines.eager._limits import Limits
from retape.engines.eager.analysis._measured import Measured, outside_bytes
from retape.engines.eager.analysis._uses import Slots, Uses
from retape.engines.eager.keep._keeper import Keeper
from retape.engines.eager.keep._place_snapshot import place_snapshot
from retape.engines.eager.trace._geometry import storage_refcount
from retape.engines.eager.trace._run import Run
from retape.engines.eager.trace._schedule import Descent, Schedule
from retape.engines.eager.trace._step import Snapshot
from retape.engines.eager.trace._trace import Trace

_MEASURED = (
    "This is the schedule of least cost for what an earlier run, or an estimate, has "
    "shown of the program."
)


@dataclass(slots=True)
class UnitSchedule:
    """Descents over the units of a run. Made for one run: it learns where they begin.

    Attributes:
        descents: The program's own run first.
        count: Units.
        measured: The run that the plan was made from; `None` if its units are
            functions, whose positions are found while they run.
        outside: Bytes that the program itself may hold at its end.
        others: What the program may follow if its first unit is not this plan's.
        cuts: Positions of the units as far as they are known.
        states: At each cut, the slots made before and used after.
        broken: The program has left the plan.
        excess: Bytes that it held beyond what there was room for, if that was why.
        overhang: Bytes that it held itself then, if that was while it ran.
        on_leaving: Called once, when the program leaves the plan.
    """

    descents: Sequence[Descent]
    count: int
    measured: Measured | None = None
    outside: int = 0
    others: "list[UnitSchedule]" = field(default_factory=list["UnitSchedule"])
    cuts: list[int] = field(default_factory=list[int])
    states: Sequence[Slots] = ()
    broken: bool = False
    excess: int = 0
    overhang: int = 0
    on_leaving: "Callable[[UnitSchedule], None] | None" = None

    def put_away(self, trace: Trace, snapshots: Sequence[Snapshot]) -> None:
        """Move what snapshots hold into the store, if there is one, by tiers."""
        elsewhere = trace.held.elsewhere
        if elsewhere is None or self.broken:
            return
        # What autograd has saved, too, is read from there when it asks for it: a plan
        # that was made of a record has counted on it.
        kept = trace.tail.steps if self.measured is None else ()
        for snapshot in snapshots:
            slots = [slot for slot in snapshot.slots if slot not in kept]
            elsewhere.put_away(slots, self._tier(self.unit_at(snapshot.position)))
        if self.measured is not None:
            for unit in self.descents[0].away:
                tape = [s for s in self.measured.tapes[unit] if s in trace.tail.steps]
                elsewhere.put_away(tape if unit < len(self.cuts) else ())

    def _tier(self, unit: int) -> str:
        """Where the last descent that stores a unit's state puts it."""
        for descent in self.descents:
            if unit in descent.stores and descent.tiers:
                return descent.tiers[descent.stores.index(unit)]
        return "memory"

    def leave(self, excess: int = 0, overhang: int = 0) -> None:
        """The rest is done without this plan."""
        if not self.broken:
            self.broken, self.excess, self.overhang = True, excess, overhang
            if self.on_leaving is not None:
                self.on_leaving(self)

    def turn(self, position: int) -> bool:
        """Become another plan whose first unit ends at a position or after it."""
        for other in self.others:
            assert other.measured is not None
            if other.measured.cuts[1] >= position:
                self.others.remove(other)
                self.descents, self.count = other.descents, other.count
                self.measured, self.outside = other.measured, other.outside
                return True
        return False

    def as_written(self, measured: Measured, in_store: bool) -> Schedule:
        """The plan as it reads, of a run whose snapshots are in a store or not."""
        nbytes = measured.nbytes
        saved = [sum(nbytes[slot] for slot in tape) for tape in measured.tapes]
        own = self.descents[0]
        # What a stored state has of a tape is put away with it.
        away = (*own.stores, *own.away) if in_store else ()
        return Schedule(self.descents, measured.cuts, saved, _MEASURED, away)

    def unit_at(self, position: int) -> int:
        """The unit that a position lies in."""
        return bisect_right(self.cuts, position) - 1

    def stop_of(self, unit: int) -> int:
        """The step behind a unit; what is saved at the end of a run is the last's."""
        return self.cuts[unit + 1] if unit + 1 < self.count else maxsize


class PlannedKeeper(Keeper):
    """Keeps what the plan's first descent says."""

    def __init__(self, run: Run, limits: Limits, plan: UnitSchedule) -> None:
        super().__init__(run, limits)
        self.plan = plan
        self._taped = True
        self._mark: int | None = None
        # What autograd saves behind a cut for the unit before: to hold, to let go.
        self._hold_late: Slots = frozenset()
        self._late: Slots = frozenset()
        if plan.measured is not None:
            self._take_up(plan.measured)

    def relieve(self) -> None:
        """At a cut, go on to the next unit; where bytes run out, let go what is not
        taped.
        """
        plan = self.plan
        if plan.broken:
            super().relieve()
            return
        self._run.note_peak()
        if plan.measured is not None:
            self._follow(plan.measured)
        if plan.broken:
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

    def begin(self, unit: int) -> None:
        """The program comes to a unit of the plan."""
        plan, trace = self.plan, self._run.trace
        if plan.broken:
            return
        if not self._taped:
            self._drop_unit()
        self._drop_late()
        if plan.states and plan.cuts:
            self._prune(plan.states[plan.unit_at(trace.opened.position)])
        plan.cuts.append(len(trace.steps))
        first = plan.descents[0]
        self._taped = unit in first.taped
        self._mark = next(reversed(trace.tail.steps), None)
        self._sort_late(unit)
        if unit in first.stores:
            place_snapshot(trace, len(trace.steps))
            self._run.tally.snapshots += 1
        if plan.measured is not None:  # what the program has let go of since the last
            self.put_away(trace.snapshots)
        elif unit in first.stores:  # the one before is complete now
            self.put_away(trace.snapshots[:-1])
        self._wake_up_in_time()

    def finish(self) -> None:
        """The end of the run: the last unit may be one that is not taped."""
        plan, run = self.plan, self._run
        if not plan.broken:
            measured = plan.measured
            same = measured is None or measured.agrees(plan.count, run)
            if len(plan.cuts) < plan.count or not same:
                self.leave()
            elif measured is None:
                ends = [*plan.cuts, len(run.trace.steps)]
                plan.states = tuple(Uses(run).crossing(ends))
            else:
                self._part_from_program()
        super().finish()
        if plan.measured is not None and not plan.broken:
            in_store = run.trace.held.elsewhere is not None
            run.tally.schedule = partial(plan.as_written, plan.measured, in_store)

    def put_away(self, snapshots: Sequence[Snapshot]) -> None:
        """Move what snapshots hold into the store, where the plan says."""
        if self.plan.broken:
            super().put_away(snapshots)
        else:
            self.plan.put_away(self._run.trace, snapshots)

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
            and (slot not in run.trace.received or run.trace.last_read[slot] >= 0)
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

    def _take_up(self, measured: Measured) -> None:
        """The program may be the one that was measured: its first unit will show."""
        plan = self.plan
        memory = self._limits.memory
        self.leave_to_record(0 if memory is None else measured.record_in(memory))
        plan.states, plan.cuts = measured.states, [0]
        self._taped = 0 in plan.descents[0].taped
        self._wake_up_in_time()

    def _follow(self, measured: Measured) -> None:
        """Look whether the next unit begins here."""
        plan, trace = self.plan, self._run.trace
        unit = len(plan.cuts)
        if unit >= plan.count or len(trace.steps) < measured.cuts[unit]:
            return
        if measured.agrees(unit, self._run):
            self.begin(unit)
        elif unit == 1 and plan.turn(len(trace.steps)):
            assert plan.measured is not None
            self._take_up(plan.measured)
            self._follow(plan.measured)
        else:
            self.leave()

    def _need(self) -> int:
        """Bytes that the operator about to run may add."""
        measured, position = self.plan.measured, len(self._run.trace.steps)
        if measured is None or position >= len(measured.needs):
            return 0
        return measured.needs[position]

    def _leave_room(self, need: int) -> None:
        """The program may hold values beyond their last use, which no plan knows of."""
        trace = self._run.trace
        if trace.counter.live + need > trace.memory:
            trace.held.settle()
        excess = trace.counter.live + need - trace.memory
        if excess > 0:
            more = math.ceil(excess)
            self.leave(more, overhang=max(more, outside_bytes(self._run)))
            while trace.counter.live + need > trace.memory:
                if not self._rules.free_some():
                    break
            super().relieve()

    def _wake_up_in_time(self) -> None:
        """At the next unit, or before an operator that takes more than any before."""
        plan, trace = self.plan, self._run.trace
        measured, unit = plan.measured, len(plan.cuts)
        if measured is None:
            trace.next_cut = float("inf")
            return
        position = len(trace.steps)
        cut = measured.cuts[unit] if unit < plan.count else len(measured.needs)
        large = (
            step
            for step in range(position + 1, cut)
            if measured.needs[step] > trace.largest
        )
        end = cut if unit < plan.count else float("inf")
        trace.next_cut = position + 1 if self._late else next(large, end)

    def _drop_unit(self) -> None:
        """Let go of what autograd saved since the unit began."""
        trace, begin = self._run.trace, self.plan.cuts[-1]
        late: list[int] = []
        for slot in reversed(trace.tail.steps):
            if slot == self._mark or trace.tail.steps[slot] < begin:
                break
            if slot not in self._hold_late:
                late.append(slot)
        for slot in late:
            trace.drop_from_tail(slot)
            self.relieved = True

    def _sort_late(self, unit: int) -> None:
        """Note what autograd is about to save for the unit before the one that begins.

        It saves results when an operator has returned, behind the cut.
        """
        measured = self.plan.measured
        if measured is None or not unit:
            return
        taped = unit - 1 in self.plan.descents[0].taped
        self._hold_late = measured.late[unit] if taped else frozenset()
        self._late = frozenset() if taped else measured.alone[unit]

    def _late_bytes(self) -> int:
        """Bytes that will be let go before the operator about to run."""
        measured, trace = self.plan.measured, self._run.trace
        if measured is None or not self._late:
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

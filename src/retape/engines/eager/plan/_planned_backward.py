"""The backward of a run by a plan: the descents of the plan, one by one.

A run that rules have led gets its plan when the backward comes to the first gap that
cannot be run again at once: the schedule of least cost for the rest. The record is
whole then, so it is made of it as for a later run. Only the program's own run is over:
it has left snapshots, and which of them stay is the dynamic programme's choice, too.
"""

from collections.abc import Sequence, Set
from dataclasses import replace
from math import ceil
from sys import maxsize

from retape.engines.eager._limits import SMALL_BUDGET, Limits
from retape.engines.eager._record_bytes import analysis_bytes, deep_bytes
from retape.engines.eager.analysis._columns import Columns, Rerun
from retape.engines.eager.analysis._measured import cut_run, widths_of
from retape.engines.eager.analysis._operator_cost import step_costs
from retape.engines.eager.analysis._unit_sizes import UnitSizes
from retape.engines.eager.analysis._uses import Slots, Uses
from retape.engines.eager.plan._book import UNITS
from retape.engines.eager.plan._dynamic_programme import Optimum, most_units
from retape.engines.eager.plan._program import FEWEST_ENTRIES
from retape.engines.eager.plan._way_back import (
    UnitSchedule,
    left_from,
    path_to,
    tapes_in,
)
from retape.engines.eager.replay._backward import Sweep, Tape
from retape.engines.eager.replay._replay import needed_steps
from retape.engines.eager.trace._report import Descent, Schedule
from retape.engines.eager.trace._run import Handle, Run
from retape.engines.eager.trace._step import Snapshot

_RUN_AGAIN = (
    "What was let go did not fit at once, so it is run again by the schedule of least "
    "cost for it (Rule 6)."
)


class PlannedSweep(Sweep):
    """Recomputes what the plan says, when the backward comes to it.

    Attributes:
        plan: The plan; a broken one where rules lead the run.
    """

    def __init__(
        self, run: Run, limits: Limits, plan: UnitSchedule | None = None
    ) -> None:
        super().__init__(run, limits)
        self.plan = UnitSchedule((), broken=True) if plan is None else plan
        self._again = False
        self._reversed = -1  # the unit that the backward is in
        self._planned_from: float = float("inf")
        # By state, the descents from it that were to come when it was looked at. All
        # states at each unit took 5 of the 65 ms of a small GPT's backward.
        self._left: dict[Snapshot, int] = {}

    def follow(self, plan: UnitSchedule) -> None:
        """From here on there is a plan."""
        self.plan = plan
        self.begin()

    def begin(self) -> None:
        """Before the backward: states that are tapes go with what autograd saved."""
        self._left = {}
        if self._run.living and not self.plan.broken:
            self._run.settle_places()
            self._part_with_states(len(self.plan.cuts))

    def fetch(self, handle: Handle) -> None:
        """Run the descent that tapes the unit of a handle."""
        plan, run = self.plan, self._run
        run.trace.held.settle()
        if run.recording and not plan.broken:  # inside of the program: much is to come
            plan.leave()
            run.trace.next_cut = 0  # its keeper looks at once
        if plan.broken:
            super().fetch(handle)
            return
        unit = plan.unit_at(run.places[handle.number])
        if self._is_second_backward(unit):
            super().fetch(handle)
            return
        self._reversed = unit
        kept = self._take(unit)
        self._pass(unit)
        path = path_to(plan.descents, unit, self._stored)
        if path[0] is plan.descents[0]:  # the second backward of one without a budget
            self._close(run.stages)
        try:
            for descent in path:
                if not plan.broken:
                    self._descend(descent, unit)
        finally:
            for slot in kept:
                run.trace.held.release(slot)
        if plan.broken:
            super().fetch(handle)
        else:
            self._part_with_states(unit)
            self._read_ahead(plan.cuts[min(path[-1].taped)])

    def _finds_plan(self, position: int) -> bool:
        run, memory = self._run, self._limits.memory
        # In a store snapshots take no room; in sections each has its own start.
        stays = run.recording or run.sections or run.trace.held.elsewhere is not None
        # Where there was no room for a plan there may be some half way back.
        tried = 2 * position > self._planned_from
        if memory is None or stays or tried or self._again:
            return False
        self._gap, self._planned_from = None, position
        if (plan := plan_rest(run, position, memory)) is None:
            return False
        self.plan = plan
        self._tell(min(position + 1, len(run.trace.steps)))
        self.begin()
        return True

    def _tell(self, end: int) -> None:
        """Have the report say what is run again up to a step, by a plan for that."""
        plan, tally = self.plan, self._run.tally
        if tally.schedule is not None:
            cuts = [*(cut for cut in plan.cuts if cut < end), end]
            found = Schedule(plan.descents, cuts, (), "")
            rules = tally.schedule()
            rules = replace(rules, why=f"{rules.why} {_RUN_AGAIN}")
            schedule = found.before(rules, self._saved_bytes)
            tally.schedule = lambda: schedule

    def _saved_bytes(self, first: int, stop: int) -> int:
        """What autograd saved in some steps."""
        run, trace = self._run, self._run.trace
        last = stop - 1 if stop < len(trace.steps) else stop
        slots = set(map(run.slot_of, run.saved_between(first, last)))
        return sum(trace.nbytes[slot] for slot in slots)

    def _is_second_backward(self, unit: int) -> bool:
        """The graph was kept: what the program's own run held is asked for again.

        No plan knows what there is room for then.
        """
        if self._limits.memory is not None and unit in self.plan.descents[0].taped:
            self._again = True
        return self._again

    def _take(self, unit: int) -> list[int]:
        """Hold on to what is there already of a unit's saved values."""
        held = self._run.trace.held
        slots = {slot for slot in self._slots(unit) if slot in held.storages}
        held.again(slots)
        return list(slots)

    def _slots(self, unit: int) -> list[int]:
        return self._run.asked_for(self._numbers(unit))

    def _numbers(self, unit: int) -> range:
        """The numbers of what autograd saved in a unit."""
        plan, run = self.plan, self._run
        numbers = run.saved_between(plan.cuts[unit], plan.stop_of(unit) - 1)
        return run.beyond(numbers) if unit == self._reversed else numbers

    def _stored(self, unit: int) -> bool:
        position = self.plan.cuts[unit]
        return unit == 0 or any(
            each.position == position for each in self._run.trace.snapshots
        )

    def _pass(self, unit: int) -> None:
        """Give up what belongs to later units, also where the graph is kept."""
        run, trace, end = self._run, self._run.trace, self.plan.stop_of(unit)
        tail = trace.tail.steps
        while tail and tail[slot := next(reversed(tail))] >= end:
            trace.drop_from_tail(slot)
        self._give_up_after(self.plan.cuts[unit])
        later = run.saved_between(end, maxsize).start
        self._close([stage for stage in run.stages if stage.low >= later])

    def _part_with_states(self, unit: int) -> None:
        """Give up the states that no descent of an earlier unit begins at.

        Autograd may ask for nothing more until the backward is far into that unit.
        """
        trace, plan = self._run.trace, self.plan
        stay: list[Snapshot] = trace.snapshots[:1]
        before, self._left = self._left, {}
        for state in trace.snapshots[1:]:
            left = left_from(plan.descents, plan.unit_at(state.position), unit)
            tapes = None
            if before.get(state) != len(left):  # else they are the same ones
                tapes = tapes_in(left, state.slots, self._slots)
            if tapes is None:
                stay.append(state)
                self._left[state] = len(left)
                continue
            self._run_to([], [self._tape_of(each) for each in tapes])
            for slot in state.slots:
                trace.held.release(slot)
        trace.snapshots, trace.opened = stay, stay[-1]

    def _descend(self, descent: Descent, last: int) -> None:
        """Run from a state, up to a unit; store and tape what the descent says.

        All at once, unless states are put away: then each before the next is computed.
        """
        taped = [u for u in descent.taped if u <= last]
        stores = [u for u in descent.stores if u <= last and not self._stored(u)]
        if self._run.trace.held.elsewhere is not None:
            for unit in sorted(stores):
                before = [u for u in taped if u < unit]
                self._make(descent, before, [unit], last)
                taped = taped[len(before) :]
            stores = []
        self._make(descent, taped, stores, last)

    def _make(
        self, descent: Descent, taped: Sequence[int], stores: Sequence[int], last: int
    ) -> None:
        """Run what makes the tapes of some units and the states before others."""
        plan, trace = self.plan, self._run.trace
        tapes = [self._tape_of(unit) for unit in taped]
        states = [
            Snapshot(
                plan.cuts[unit],
                self._state(unit, last),
                trace.saved,
                descent.tier_of(unit),
            )
            for unit in stores
        ]
        wanted = {slot for each in states for slot in each.slots}
        wanted.update(slot for _, slots in tapes for slot in slots)
        if not plan.broken and not self._is_too_much(self._not_there(wanted), last):
            self._run_to(states, tapes)
            plan.put_away(trace)

    def _state(self, unit: int, last: int) -> set[int]:
        """The part of the state before a unit that units up to another still use.

        What only later ones read has been reversed with them, and no snapshot of this
        segment holds it: a loop's results, read at its end, were computed anew from
        the program's start, 20 times in a Mamba of two blocks.
        """
        plan, trace = self.plan, self._run.trace
        used = {slot for each in range(unit, last + 1) for slot in self._slots(each)}
        for step in trace.steps[plan.cuts[unit] : plan.stop_of(last)]:
            used.update(step.reads)
        return used & plan.states[unit]

    def _tape_of(self, unit: int) -> Tape:
        return self._numbers(unit), self._slots(unit)

    def _is_too_much(self, slots: Set[int], last: int) -> bool:
        """Tell whether there is no room, against the plan, which is left then.

        What running to a unit takes on the way the plan has counted, if it is whole.
        """
        trace, plan = self._run.trace, self.plan
        nbytes = sum(trace.nbytes[slot] for slot in slots)
        if plan.excess:
            columns = Columns.of(trace)
            end = min(plan.stop_of(last), columns.length)
            rerun = Rerun(columns, needed_steps(trace, slots))
            nbytes = max(nbytes, rerun.peak(slots) + int(columns.waiting[end]))
        excess = trace.counter.live + nbytes - trace.memory
        if excess > 0:
            plan.leave(ceil(excess))
        return excess > 0


def plan_rest(run: Run, position: int, memory: int) -> UnitSchedule | None:
    """Descents for all that is saved up to a position; `None` if there is no room.

    Args:
        run: A recorded run, whose backward has come to the position.
        position: The step at which the value was saved that is asked for.
        memory: The budget.
    """
    trace = run.trace
    length = len(trace.steps)
    end = min(position + 1, length)
    high = run.beyond(run.saved_between(0, position)).stop
    uses = Uses(run, bytes(run.alive[:high]) + bytes(len(run.alive) - high))
    snapshots = [each.position for each in trace.snapshots]
    free = int(trace.memory - trace.counter.live)
    waiting = Columns.of(trace).waiting_at(position)
    table = _room_for_table(run, memory, free - waiting)
    most = most_units(table, UNITS)
    if most <= len(snapshots):
        return None
    cuts = [c for c in cut_run(trace, uses, most, [*snapshots, end]) if c <= end]
    states = uses.crossing(cuts)
    units = UnitSizes(run, uses, step_costs(trace)).units(cuts, states)
    ours = set[int]().union(*(each.slots for each in trace.snapshots))
    room = free + uses.nbytes(ours - trace.tail.steps.keys())
    widths = widths_of(states, trace.nbytes)
    best = Optimum(
        units,
        widths,
        max(0, room),
        FEWEST_ENTRIES,
        table=table - deep_bytes(units, states),
        held=[cuts.index(each) for each in snapshots],
    )
    if best.cost == float("inf"):
        return None
    own, *descents = best.descents()
    if end == length:
        cuts.pop()
    else:  # the last unit is what was kept, and is reversed
        own = Descent(0, len(cuts), own.stores, (len(units),), -1)
        states.append(Slots())
    return UnitSchedule([own, *descents], cuts, states)


def _room_for_table(run: Run, memory: int, free: int) -> int:
    """The bytes of the host that are left for a plan's units and their table.

    Nothing is run again yet, so they may take what that will, and what is left of the
    megabyte that tensors and the record may take in any budget.
    """
    if not run.trace.on_host:
        return SMALL_BUDGET
    record = run.tally.record
    taken = memory + analysis_bytes(run) + (0 if record is None else record.bare)
    return max(0, free) + max(0, SMALL_BUDGET - taken)

"""A run that follows a plan made beforehand: what to hold where, forward and back.

A plan is a list of descents over units. The first is the program's own run: the values
that autograd saves are held in the units that it tapes and let go in the others, and
the state before each stored unit is held. When the backward comes to a unit that is not
taped, the descent that tapes it is run from the state that it starts at. All of it is
below the rules of the general engine: if a program leaves the plan, the rest is done
without one, and every value can still be recomputed.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence, Set
from dataclasses import dataclass, field

import torch

from ._keep import Keeper, place_snapshot
from ._limits import Limits
from ._measure import Measured, Slots, crossing_slots
from ._optimum import Descent
from ._run import Handle, Run, Stage
from ._sweep import Sweep
from ._trace import Snapshot


@dataclass(slots=True)
class Plan:
    """Descents over the units of a run. Made for one run: it learns where they begin.

    Attributes:
        descents: The program's own run first.
        count: Units.
        measured: The run that the plan was made from; `None` if its units are
            functions, whose positions are found while they run.
        cuts: Positions of the units as far as they are known.
        states: At each cut, the slots made before and used after.
        broken: The program has left the plan.
        excess: Bytes that it held beyond what there was room for, if that was why.
    """

    descents: list[Descent]
    count: int
    measured: Measured | None = None
    cuts: list[int] = field(default_factory=list[int])
    states: tuple[Slots, ...] = ()
    broken: bool = False
    excess: int = 0

    def owner(self, unit: int) -> int:
        """The descent that tapes a unit."""
        for number, descent in enumerate(self.descents):
            if unit in descent.taped:
                return number
        raise AssertionError(f"no descent tapes unit {unit}")

    def unit_at(self, position: int) -> int:
        """The unit that a position lies in; what is saved at the end is the last's."""
        return min(len(self.cuts), bisect_right(self.cuts, position)) - 1

    def numbers(self, unit: int, run: Run) -> tuple[int, int]:
        """The range of the tensors that autograd saved in a unit."""
        low = bisect_left(run.handle_steps, self.cuts[unit])
        if unit + 1 == self.count:
            return low, len(run.handle_steps)
        return low, bisect_left(run.handle_steps, self.cuts[unit + 1])


class PlannedKeeper(Keeper):
    """Keeps what the plan's first descent says."""

    def __init__(self, run: Run, limits: Limits, plan: Plan) -> None:
        super().__init__(run, limits)
        self._plan = plan
        self._taped = True
        self._mark: int | None = None
        if plan.measured is not None:
            plan.states = plan.measured.states
            self.begin(0)

    def relieve(self) -> None:
        """At a cut, go on to the next unit; between cuts, let go what is not taped."""
        plan, trace = self._plan, self._run.trace
        if plan.broken:
            super().relieve()
            return
        self._run.note_peak()
        if plan.measured is not None:
            self._follow(plan.measured)
        if not self._taped and not plan.broken:
            self._drop_unit()
        # The program may hold values beyond their last use, which no plan knows of.
        # About one more result has room between the two limits' mean and the budget.
        most = ((self._limits.memory or float("inf")) + trace.limit) / 2
        if trace.counter.live > most:
            plan.excess = math.ceil(trace.counter.live - most)
            self._leave()
            super().relieve()

    def begin(self, unit: int) -> None:
        """The program comes to a unit of the plan."""
        plan, trace = self._plan, self._run.trace
        if plan.broken:
            return
        if not self._taped:
            self._drop_unit()
        if plan.states and plan.cuts:
            self._prune(plan.states[plan.unit_at(trace.opened.position)])
        plan.cuts.append(len(trace.steps))
        first = plan.descents[0]
        self._taped = unit in first.taped
        self._mark = next(reversed(trace.tail.steps), None)
        if unit in first.stores:
            place_snapshot(trace, len(trace.steps))
            self._run.tally.snapshots += 1
        self._wake_up_at_the_next_cut()

    def finish(self) -> None:
        """The end of the run: the last unit may be one that is not taped."""
        plan = self._plan
        if not plan.broken:
            measured, run = plan.measured, self._run
            same = measured is None or measured.agrees(plan.count, run)
            if len(plan.cuts) < plan.count or not same:
                self._leave()
            elif measured is None:
                ends = [*plan.cuts, len(run.trace.steps)]
                plan.states = crossing_slots(run, ends)
        super().finish()

    def _leave(self) -> None:
        """Do without the plan from here on."""
        self._plan.broken = True
        self._run.trace.next_cut = float("inf")

    def _follow(self, measured: Measured) -> None:
        """Look whether the next unit begins here."""
        plan, trace = self._plan, self._run.trace
        unit = len(plan.cuts)
        if unit < plan.count and len(trace.steps) >= measured.cuts[unit]:
            if not measured.agrees(unit, self._run):
                self._leave()
                return
            self.begin(unit)

    def _wake_up_at_the_next_cut(self) -> None:
        """Or at each operator, where what it saves is let go at the next one."""
        plan, unit = self._plan, len(self._plan.cuts)
        cut = float("inf")
        if plan.measured is not None and unit < plan.count:
            cut = plan.measured.cuts[unit]
        self._run.trace.next_cut = cut if self._taped else 0

    def _drop_unit(self) -> None:
        """Let go of what autograd saved since the unit began."""
        trace, begin = self._run.trace, self._plan.cuts[-1]
        late: list[int] = []
        for slot in reversed(trace.tail.steps):
            if slot == self._mark or trace.tail.steps[slot] < begin:
                break
            late.append(slot)
        for slot in late:
            trace.drop_from_tail(slot)

    def _prune(self, state: Slots) -> None:
        """Let the open snapshot's slots go that nothing recomputed will read."""
        trace = self._run.trace
        for slot in trace.opened.slots - state:
            trace.opened.slots.discard(slot)
            trace.held.release(slot)


class PlannedSweep(Sweep):
    """Recomputes what the plan says, when the backward comes to it."""

    def __init__(self, run: Run, limits: Limits, plan: Plan) -> None:
        super().__init__(run, limits)
        self._plan = plan

    def fetch(self, handle: Handle) -> None:
        """Run the descent that tapes the unit of a handle."""
        plan, run = self._plan, self._run
        if plan.broken:
            super().fetch(handle)
            return
        unit = plan.unit_at(run.handle_steps[handle.number])
        kept = self._take(unit)
        self._pass(unit)
        path = [plan.owner(unit)]
        while not self._stored(plan.descents[path[-1]].start):
            path.append(plan.descents[path[-1]].parent)
        if not path[-1]:  # from the beginning, as after a backward that kept the graph
            self._close(run.stages)
        for number in reversed(path):
            self._descend(plan.descents[number], unit)
        for slot in kept:
            run.trace.held.release(slot)

    def _take(self, unit: int) -> list[int]:
        """Hold on to what is there already of a unit's saved values."""
        held = self._run.trace.held
        slots = {slot for slot in self._slots(unit) if slot in held.storages}
        held.again(slots)
        return list(slots)

    def _slots(self, unit: int) -> list[int]:
        run = self._run
        low, high = self._plan.numbers(unit, run)
        return [run.slot_of(k) for k in range(low, high) if run.alive[k]]

    def _stored(self, unit: int) -> bool:
        position = self._plan.cuts[unit]
        return unit == 0 or any(
            each.position == position for each in self._run.trace.snapshots
        )

    def _pass(self, unit: int) -> None:
        """Give up what belongs to later units."""
        run, trace = self._run, self._run.trace
        while trace.snapshots[-1].position > self._plan.cuts[unit]:
            for slot in trace.snapshots.pop().slots:
                trace.held.release(slot)
        trace.opened = trace.snapshots[-1]
        _, high = self._plan.numbers(unit, run)
        self._close([stage for stage in run.stages if stage.low >= high])

    def _close(self, stages: Sequence[Stage]) -> None:
        for stage in list(stages):
            stage.close()
            self._run.stages.remove(stage)

    def _descend(self, descent: Descent, last: int) -> None:
        """Run from a state, up to a unit; store and tape what the descent says."""
        run, plan, held = self._run, self._plan, self._run.trace.held
        tapes = {u: self._slots(u) for u in descent.taped if u <= last}
        stores = [u for u in descent.stores if u <= last and not self._stored(u)]
        wanted = {slot for slots in tapes.values() for slot in slots}
        for unit in stores:
            wanted |= plan.states[unit]
        computed = self._replay({slot for slot in wanted if slot not in held.storages})
        for unit in stores:
            self._hold_all(plan.states[unit], computed)
            place = Snapshot(plan.cuts[unit], set(plan.states[unit]), 0)
            run.trace.snapshots.append(place)
            run.tally.planted += 1
        run.trace.snapshots.sort(key=lambda each: each.position)
        run.trace.opened = run.trace.snapshots[-1]
        for unit, slots in tapes.items():
            self._hold_all(set(slots), computed)
            run.stages.append(Stage(run, *plan.numbers(unit, run), slots))
            run.tally.stages += 1

    def _hold_all(self, slots: Set[int], computed: dict[int, torch.Tensor]) -> None:
        held = self._run.trace.held
        for slot in slots:
            if slot in held.storages:
                held.again((slot,))
            else:
                self._hold(slot, computed[slot])

"""The backward: recompute what autograd asks for, one stage at a time.

Autograd asks in reverse order of the program. When it asks for a value that is held no
more, the values saved between that position and the nearest snapshot before it, the
*gap*, are recomputed, if they fit. If they do not, a plan may be found for them and all
that lies before; in next to no room there is none, and the last part that fits is
recomputed: snapshots are planted on the way there at binomial splits (treeverse,
Griewank 1992, without recursion: the snapshots held are the stack).
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from torch import Tensor

from retape.engines.eager._limits import Limits
from retape.engines.eager.analysis._columns import Columns, Rerun
from retape.engines.eager.replay._gap import Gap
from retape.engines.eager.replay._replay import Replay, needed_steps
from retape.engines.eager.trace._holdings import TAG, Buffer, native_for
from retape.engines.eager.trace._run import Handle, RecomputedValues, Run
from retape.engines.eager.trace._step import Snapshot

Tape = tuple[range, list[int]]
"""The numbers of the handles that it is for, and their slots."""


class Sweep:
    """Recomputes the values of one run within its limits."""

    def __init__(self, run: Run, limits: Limits) -> None:
        self._run = run
        self._limits = limits
        self._gap: Gap | None = None
        self._section = 0

    def fetch(self, handle: Handle) -> None:
        """Recompute the stage that ends with a handle."""
        run = self._run
        run.trace.held.settle()
        run.reversed_inside |= run.recording
        if not run.recording:
            run.settle_places()
        position = run.places[handle.number]
        self._let_go_after(position)
        self._section = run.enter_section(handle.number)
        if self._gap is None or not self._gap.covers(self._start, position):
            self._gap = self._gap_before(position)
        if not self._gap.fits(self._start, position) and self._finds_plan(position):
            self.fetch(handle)
            return
        gap = self._with_room(position)
        first = self._plant_up_to(gap, position)
        self._read_ahead(self._tape(gap, first, position))

    def _read_ahead(self, position: int) -> None:
        """Begin to read the snapshot that what lies before a position is run from."""
        trace = self._run.trace
        before = (s for s in reversed(trace.snapshots) if s.position < position)
        if (snapshot := next(before, None)) is not None:
            if trace.held.elsewhere is not None:
                trace.held.elsewhere.read_ahead(snapshot.slots)

    @property
    def _start(self) -> int:
        """The latest snapshot in this section, from which to run again."""
        return max(self._run.trace.snapshots[-1].position, self._section)

    def _plant_up_to(self, gap: Gap, position: int) -> int:
        """Plant the snapshots of binomial splits (Rule 6); the last stage's begin."""
        start = self._start
        planting, cut = gap.next_action(start, position)
        while planting:
            slots = gap.crossing(start, cut)
            if not self._admits(gap, self._not_there(slots), 0, position):
                return max(start, gap.last_cut(position))
            self._run_to([Snapshot(cut, slots, self._run.trace.saved)], [])
            start = cut
            planting, cut = gap.next_action(start, position)
        return cut

    def _let_go_after(self, position: int) -> None:
        """Give up the stages and snapshots that the sweep has passed."""
        self._give_up_after(position)
        self._close(self._run.stages)

    def _give_up_after(self, position: int) -> None:
        while self._run.trace.snapshots[-1].position > position:
            self._give_up_last()

    def _close(self, stages: Iterable[RecomputedValues]) -> None:
        for stage in list(stages):
            stage.close()
            self._run.stages.remove(stage)

    def _gap_before(self, position: int) -> Gap:
        return Gap(self._run, self._start, position, self._limits)

    def _finds_plan(self, position: int) -> bool:
        """Whether there is a plan now for all that is saved up to a position."""
        return False

    def _give_up_last(self) -> None:
        trace = self._run.trace
        for slot in trace.snapshots.pop().slots:
            trace.held.release(slot)
        trace.opened = trace.snapshots[-1]

    def _give_up_tail(self) -> bool:
        """Give up the older half of the tail: cotangents may have come in its place."""
        trace = self._run.trace
        if not trace.tail.steps:
            return False
        half = trace.tail.nbytes // 2
        while trace.tail.steps and trace.tail.nbytes >= half:
            trace.drop_from_tail(next(iter(trace.tail.steps)))
        return True

    def _with_room(self, position: int) -> Gap:
        """The gap once snapshots are given up until a unit fits after the nearest."""
        trace = self._run.trace
        gap = self._gap = self._gap or self._gap_before(position)
        while self._limits.memory is not None:
            if gap.fits(gap.start, position):
                break
            if gap.fits(gap.last_cut(position), position):
                break
            if gap.end <= position:  # else it was cut for the room of another time
                if len(trace.snapshots) == 1:
                    break
                self._give_up_last()
            gap = self._gap = self._gap_before(position)
        return gap

    def _tape(self, gap: Gap, first: int, last: int) -> int:
        """Recompute all that was saved between two steps, or as much as fits.

        What was planted may be wider than cuts are on average. The values of one step,
        from the start of the program, fit if the budget is not refused. Returns where
        what was recomputed begins.
        """
        trace, tape = self._run.trace, self._missing(first, last)
        while not self._fits(gap, tape[1], last):
            if first < last:
                first = gap.shorter(first, last)
            elif len(trace.snapshots) > 1:
                self._give_up_last()
                first = max(self._start, gap.last_cut(last))
            elif not self._give_up_tail():
                break
            tape = self._missing(first, last)
        self._run_to([], [tape])
        return first

    def _run_to(self, states: Sequence[Snapshot], tapes: Sequence[Tape]) -> None:
        """Run what is missing of some states and tapes, and hold these."""
        run, trace = self._run, self._run.trace
        held = [*(each.slots for each in states), *(set(slots) for _, slots in tapes)]
        missing = self._not_there(set[int]().union(*held))
        if missing:
            self._hold_computed(self._replay(missing))
        for slots in held:
            trace.held.again(slots - missing)  # it was held for the first of them
            missing -= slots
        if states:
            trace.snapshots += states
            trace.snapshots.sort(key=attrgetter("position"))
            trace.opened = trace.snapshots[-1]
            run.tally.planted += len(states)
        run.stages += [RecomputedValues(run, *tape) for tape in tapes]
        run.tally.stages += len(tapes)

    def _not_there(self, slots: Iterable[int]) -> set[int]:
        storages = self._run.trace.held.storages
        return {slot for slot in slots if slot not in storages}

    def _missing(self, first: int, last: int) -> Tape:
        """Of what was saved between two steps, what is not there."""
        run, storages = self._run, self._run.trace.held.storages
        numbers = run.beyond(run.saved_between(first, last))
        return numbers, [
            slot for slot in run.asked_for(numbers) if slot not in storages
        ]

    def _fits(self, gap: Gap, slots: Sequence[int], position: int) -> bool:
        nbytes, missing = self._run.trace.nbytes, set(slots)
        left = sum(nbytes[slot] for slot in missing)
        return self._admits(gap, missing, left, position)

    def _admits(self, gap: Gap, missing: set[int], left: int, position: int) -> bool:
        """Whether there is room to compute slots, of which some bytes will be left."""
        trace = self._run.trace
        if self._limits.memory is None:
            return True
        if not gap.admits(left, left, position):
            return False
        # Those are made, too, that earlier stages of the gap will save.
        rerun = Rerun(Columns.of(trace), needed_steps(trace, missing))
        return gap.admits(rerun.peak(missing), left, position)

    def _replay(self, wanted: set[int]) -> dict[int, Tensor]:
        trace, tally = self._run.trace, self._run.tally
        needed = needed_steps(trace, wanted)
        tally.recomputed += len(needed)
        tally.again.update(needed)
        return Replay(trace, needed, wanted).run()

    def _hold_computed(self, computed: dict[int, Tensor]) -> None:
        trace = self._run.trace
        module = native_for(trace)
        if module is not None:
            module.hold(trace.owner, trace.counter, trace.held, computed)
        else:
            for slot, root in computed.items():
                storage = root.untyped_storage()
                if getattr(storage, TAG, None) is None:
                    buffer = Buffer(trace.owner, slot, storage.nbytes(), trace.counter)
                    setattr(storage, TAG, buffer)
                trace.held.hold(slot, storage)
        self._run.note_peak()

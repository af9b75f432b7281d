"""Choose snapshots during a forward run of unknown length, within a budget.

Everything that autograd saves is kept at first: that is the tail. When the bytes run
out, the oldest part of the tail is sealed: a snapshot is put at the narrowest position
of the next gap and the values before it are let go. A gap is at most as long as what
remains of the tail, because its values will be recomputed in the room that the tail
leaves once it has been reversed. When the snapshots themselves take too much, every
other one is given up and the gap doubles: the spacing that needs no count of the steps.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from retape.engines.eager._limits import (
    BACKWARD_NUMBERS,
    Limits,
    ample_budget,
    room_for_tensors,
)
from retape.engines.eager._record_bytes import RecordSize
from retape.engines.eager.analysis._least_memory import Beside, check_budget
from retape.engines.eager.analysis._liveness import step_cotangents, waiting_beside
from retape.engines.eager.keep._place_snapshot import (
    merge_snapshot,
    narrowest,
    place_snapshot,
)
from retape.engines.eager.trace._geometry import storage_refcount

if TYPE_CHECKING:
    from retape.engines.eager.trace._run import Run
    from retape.engines.eager.trace._trace import Trace

# The first gap is the budget over this: many narrow candidates at first, since a
# snapshot that turns out wide or superfluous is given up at no cost.
_FIRST_GAPS = 48


# Steps after a position by which most of what crosses it has been read.
_LOOKAHEAD = 4
# A gap of so many steps without a position for a complete snapshot has none by nature.
_MANY = 8
# Snapshots may take this share of the memory. Were they to take all of it, nothing
# would be left in which to reverse the last gap; a third is what d = 2, alpha = 1 need.
_SNAPSHOT_SHARE = 2 / 3
# Operators before the record is counted for the first time, and how many times as many
# each time after: so much more than is there is left for it.
_FIRST_COUNT, _NEXT_COUNT = 64, 1.05
# What the analysis of a gap takes for each operator, in Python.
_ANALYSIS_BYTES = 160


def _on_host(trace: "Trace") -> bool:
    """Whether tensors are in the memory that the record is in."""
    devices = (known.tensor.device.type for known in trace.foreign.values())
    return all(device in ("cpu", "meta") for device in devices)


class Keeper:
    """Keeps a run within a number of bytes, or of snapshots.

    Attributes:
        relieved: Values were let go.
        floor: A budget below is too small for what was alive at once.
        enough: If no value was let go, bytes in which the next run need not either.
        room: The bytes of the budget that tensors have, beside the record on the host:
            `floor` and `enough` are such bytes, too.
        bookkeeping: The bytes of the record that are left to it; `bare`: those without
            notes of what is held, which is let go before much is computed again.
        sharding: Those that are left to FSDP2.
    """

    def __init__(self, run: "Run", limits: Limits) -> None:
        self._run = run
        self._limits = limits
        self._gap = max(1, (limits.memory or 0) // _FIRST_GAPS)
        self._spacing = limits.stage
        self.floor = self.enough = 0
        self.relieved = False
        self._measured: tuple[tuple[int, ...], int] = ((), 0)
        self._again = 0
        self.room: int | None = limits.memory
        self.bookkeeping = self.bare = self.sharding = 0
        self._next_count: float = _FIRST_COUNT
        self._sample: RecordSize | None = None
        self._on_host = True
        if limits.memory is not None:
            run.trace.memory = run.trace.limit = limits.memory - BACKWARD_NUMBERS
            run.trace.next_cut = self._next_count
        if limits.snapshots is not None:
            run.trace.next_cut = limits.stage

    def relieve(self) -> None:
        """Let values go until the run is within its limits, or nothing is left."""
        if self._limits.snapshots is not None:
            self._count_snapshots(self._limits.snapshots)
            return
        trace, tally = self._run.trace, self._run.tally
        tally.peak = max(tally.peak, trace.counter.live)
        if len(trace.steps) >= self._next_count:
            self._count_record()
        if trace.counter.live > trace.limit:
            trace.held.settle()
        while trace.counter.live > trace.limit and self._one_step():
            self.relieved = True
        if self.room is None or trace.counter.live <= trace.limit:
            return
        excess = trace.in_flight.wait_for(lambda: trace.counter.live - trace.limit)
        if excess > 0:
            self.floor = max(self.floor, self.room + int(excess))

    def leave_to_record(self, nbytes: int) -> None:
        """From now on tensors have what a record of so many bytes leaves them.

        The budget is the accelerator's where tensors are on one, and the record is not.
        """
        memory = self._limits.memory
        if memory is None or self.room is None or not self._on_host:
            return
        self.bookkeeping = nbytes
        self._have_room(room_for_tensors(memory, nbytes) - self.sharding)

    def leave_to_sharding(self, nbytes: int) -> None:
        """From now on FSDP2 has so many bytes, and tensors have what that leaves."""
        trace, tally, before = self._run.trace, self._run.tally, self.sharding
        if nbytes == before:
            return
        tally.end_of_phase()
        self.sharding = nbytes
        if self.room is not None:
            self._have_room(self.room + before - nbytes)
            if trace.counter.live > trace.limit:
                self.relieve()
        tally.peak, tally.sharding = trace.counter.live, nbytes

    def _have_room(self, room: int) -> None:
        trace = self._run.trace
        assert self.room is not None
        trace.memory += room - self.room
        trace.limit += room - self.room
        self.room = room

    def _count_record(self) -> None:
        """Leave to the record what it will take when it is counted next."""
        run = self._run
        size = RecordSize(run, self._sample)
        if self._sample is None:
            self._sample, self._on_host = size, _on_host(run.trace)
        self.leave_to_record(round(_NEXT_COUNT * size.nbytes()))
        self._next_count = math.ceil(_NEXT_COUNT * len(run.trace.steps))
        run.trace.next_cut = self._next_count

    def make_room(self, nbytes: int) -> None:
        """Let values go for an operator that is about to take so many bytes."""
        trace = self._run.trace
        if trace.counter.live + nbytes > trace.memory:
            trace.held.settle()
        while trace.counter.live + nbytes > trace.memory and self._one_step():
            self.relieved = True

    def finish(self) -> None:
        """The run is over: others may now write where the trace does not see it."""
        trace = self._run.trace
        trace.held.settle()
        trace.settle_regions(over=True)
        if self.room is not None:
            self._end_of_record()
            self._leave_room_for_sums()
            self.relieve()
            if self.relieved:  # what was let go has no notes any more
                self._run.trace.held.shrink()
                self._run.trace.tail.shrink()
                self._end_of_record()
            self._leave_room_for_waiting()
            self.enough = self._bytes_of_all(self.room)
        if not self._limits.keep_tail:
            self._drop_tail(len(trace.steps) + 1)
        for slot, storage in list(trace.held.storages.items()):
            if slot in trace.received and trace.last_read[slot] < 0:
                # It may still be on its way. As in plain PyTorch, what autograd saved
                # of it is the tensor itself.
                if slot not in trace.asked:
                    trace.forget_received(slot)
            elif storage_refcount(storage) > 1:
                trace.separate(slot)
                self._again = max(self._again, trace.nbytes[slot])
        for slot, storage in list(trace.tail.partial.items()):
            if storage_refcount(storage) > 1:
                trace.drop_from_tail(slot)
                self._again = max(self._again, trace.nbytes[slot])
        if self.enough:
            # What the program holds, too, is computed again, one value at a time.
            self.enough += self._again
            if not self.relieved:
                most = self._limits.memory or self.enough
                enough = ample_budget(self.enough + self.sharding, self.bookkeeping)
                self._run.tally.peak = min(enough, most) - self.sharding

    def _end_of_record(self) -> None:
        """The record has its last size: it is what the report says."""
        run = self._run
        self._next_count = run.trace.next_cut = float("inf")
        run.tally.record = RecordSize(run)
        self._on_host = _on_host(run.trace)
        analysis = _ANALYSIS_BYTES * len(run.trace.steps) if run.native is None else 0
        self.leave_to_record(run.tally.record.nbytes() + analysis)
        if self.bookkeeping:
            self.bare = run.tally.record.without_notes() + analysis

    def _bytes_of_all(self, room: int) -> int:
        """Bytes in which all values can be kept, and the backward done."""
        trace = self._run.trace
        reserved = room - trace.memory
        forward = max(trace.counter.peak, trace.counter.live) + trace.largest
        backward = trace.memory + self._reverse_excess(waiting_beside(trace))
        return math.ceil(reserved + max(forward, backward))

    def _leave_room_for_sums(self) -> None:
        """Now it is known which parameters are read more than once."""
        trace = self._run.trace
        trace.note_sums_apart()
        first = {trace.first_read[slot] for slot in trace.apart}
        room = max((step_cotangents(trace, step) for step in first), default=0)
        trace.memory -= trace.sum_bytes() + trace.state_bytes()
        trace.limit = trace.memory - max(trace.largest, room)

    def _leave_room_for_waiting(self) -> None:
        """Where much is read late, cotangents come faster than the tail goes."""
        trace = self._run.trace
        waiting = waiting_beside(trace)
        if trace.counter.live + trace.largest + max(waiting) <= trace.memory:
            return
        while (excess := self._reverse_excess(waiting)) > 0:
            goal, before = trace.counter.live - excess, trace.counter.live
            while trace.counter.live > goal and self._one_step():
                self.relieved = True
            if trace.counter.live == before:
                return

    def _reverse_excess(self, waiting: Sequence[int]) -> float:
        """Bytes beyond the memory at the worst place of the backward."""
        trace = self._run.trace
        later, most, beyond = trace.tail.nbytes, 0, len(waiting)
        for slot, step in reversed(trace.tail.steps.items()):
            if step < beyond:
                most = max(most, later + max(waiting[step:beyond]))
                beyond = step
            later -= trace.nbytes[slot]
        most = max(most, max(waiting[:beyond], default=0))
        held = trace.counter.live - trace.tail.nbytes
        return held + most + trace.largest - trace.memory

    def check_budget(self) -> None:
        """Refuse a budget in which the backward cannot be done.

        Raises:
            BudgetError: If there is none; it names the least.
        """
        memory = self._limits.memory
        if memory is None or self.room is None:
            return
        if self.relieved or self.enough > self.room:
            room = room_for_tensors(memory, self.bare) - self.sharding
            beside = Beside(self.bare, self.sharding)
            check_budget(self._run, memory, room, beside, self.floor, self.relieved)

    def _one_step(self) -> bool:
        trace = self._run.trace
        if trace.tail.nbytes >= 2 * self._gap and self._seal():
            return True
        held = self._snapshot_bytes() if len(trace.snapshots) > 2 else 0
        share = _SNAPSHOT_SHARE * trace.limit
        if len(trace.snapshots) > 2 and (held >= 2 * self._gap or held > share):
            return self._thin()
        if trace.tail.steps:
            return self._seal() or self._drop_oldest()
        if len(trace.snapshots) > 2:
            return self._thin()
        return self._close_stages() or (
            len(trace.snapshots) > 1 and self._give_up_opened()
        )

    def _close_stages(self) -> bool:
        """Let go of what a backward inside of the program had computed again.

        What it has not read yet is computed once more when it is asked for.
        """
        stages = self._run.stages
        if not any(stage.left for stage in stages):
            return False
        for stage in stages:
            stage.close()
        stages.clear()
        return True

    def _give_up_opened(self) -> bool:
        """The last state may be wider than all that there is room for."""
        trace = self._run.trace
        left = trace.snapshots[-2]
        merge_snapshot(trace, left, trace.snapshots.pop())
        trace.opened = left
        self._run.tally.thinned += 1
        return True

    def _count_snapshots(self, most: int) -> None:
        """End a gap of `spacing` steps; beyond `most` snapshots, double the spacing."""
        trace = self._run.trace
        self._place(trace.snapshots[-1].position, len(trace.steps))
        self._drop_tail(trace.snapshots[-1].position)
        if len(trace.snapshots) > most:
            self._thin()
            self._spacing *= 2
        trace.next_cut = trace.snapshots[-1].position + self._spacing

    def _snapshot_bytes(self) -> int:
        trace = self._run.trace
        key = (len(trace.snapshots), trace.opened.position, len(trace.opened.slots))
        if key != self._measured[0]:
            slots: set[int] = set()
            for snapshot in trace.snapshots:
                slots |= snapshot.slots
            self._measured = key, sum(trace.nbytes[slot] for slot in slots)
        return self._measured[1]

    def _seal(self) -> bool:
        """End a gap at its narrowest position and let go of what lies before."""
        trace = self._run.trace
        if self._drop_before_opened():
            return True
        begin = trace.snapshots[-1].position
        end = self._end_of_gap(begin, self._gap)
        if end is None:
            return False
        before = trace.tail.nbytes
        self._drop_tail(self._place(begin, end))
        dropped = before - trace.tail.nbytes
        if 1.2 * sum(trace.nbytes[slot] for slot in trace.opened.slots) > dropped:
            self._gap *= 2  # the snapshot holds all of what was to be let go
        trace.opened.saved = trace.saved - trace.tail.nbytes
        return True

    def _drop_before_opened(self) -> bool:
        """Let go of a gap's bytes of the tail, if it begins before the last snapshot.

        There is a snapshot behind them already.
        """
        trace = self._run.trace
        goal = trace.tail.nbytes - self._gap
        steps, position = trace.tail.steps, trace.opened.position
        dropped = False
        while steps and steps[slot := next(iter(steps))] < position:
            if dropped and trace.tail.nbytes <= goal:
                break
            trace.drop_from_tail(slot)
            dropped = True
        return dropped

    def _place(self, begin: int, end: int) -> int:
        """Put a snapshot at the narrowest position, where it can be complete.

        Loops whose state is overwritten may have no such position in a gap, nor in one
        twice as long. A snapshot of the present collects all that is read from now on.

        Returns:
            The step before which the tail is let go: a gap's bytes, also where the
            snapshot lies further on.
        """
        trace = self._run.trace
        trace.settle_regions()
        present = len(trace.steps)
        position, missing = narrowest(trace, begin, end)
        if missing:
            end = min(2 * end - begin, max(end, present - _LOOKAHEAD))
            position, missing = narrowest(trace, begin, end)
        if missing and end - begin >= _MANY:
            position = present
        place_snapshot(trace, position)
        self._run.tally.snapshots += 1
        return min(position, end)

    def _end_of_gap(self, begin: int, gap: int) -> int | None:
        """The step by which `gap` bytes have been saved since `begin`, if they have."""
        trace = self._run.trace
        if trace.saved - trace.opened.saved <= gap:
            return None
        total = trace.saved - trace.opened.saved - trace.tail.nbytes
        for slot, step in trace.tail.steps.items():
            total += trace.nbytes[slot]
            if total > gap and step > begin:
                break
        else:
            step = len(trace.steps)
        # What crosses the latest positions shows only when it has been read.
        step = min(step, len(trace.steps) - _LOOKAHEAD)
        return step if total > gap and step > begin else None

    def _drop_tail(self, before: int) -> None:
        """Let go of the tail's values saved before a step."""
        trace = self._run.trace
        steps = trace.tail.steps
        while steps and steps[slot := next(iter(steps))] < before:
            trace.drop_from_tail(slot)

    def _drop_oldest(self) -> bool:
        """Let one value go: the open snapshot is there to recompute it from."""
        trace = self._run.trace
        trace.drop_from_tail(next(iter(trace.tail.steps)))
        return True

    def _thin(self) -> bool:
        """Give up every other snapshot, of each pair the wider one."""
        trace = self._run.trace
        old = trace.snapshots
        sizes = [sum(trace.nbytes[s] for s in snapshot.slots) for snapshot in old]
        kept = [old[0]]
        for k in range(1, len(old) - 1, 2):
            # The open snapshot, which collects reads, is the last one and stays.
            first_is_wide = sizes[k] > sizes[k + 1] or k + 1 == len(old) - 1
            wide, narrow = (k, k + 1) if first_is_wide else (k + 1, k)
            merge_snapshot(trace, kept[-1] if first_is_wide else old[k], old[wide])
            kept.append(old[narrow])
        if len(old) % 2 == 0:
            kept.append(old[-1])
        trace.snapshots, trace.opened = kept, kept[-1]
        self._run.tally.thinned += len(old) - len(kept)
        self._gap *= 2
        return True

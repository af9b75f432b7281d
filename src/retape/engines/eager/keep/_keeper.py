"""Keep a forward run of unknown length within a budget of bytes, or of snapshots.

How much there is room for is counted here, beside the record; which values are let go,
by the rules of `_rules`.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from retape.engines.eager._limits import (
    BACKWARD_NUMBERS,
    Limits,
    ample_budget,
    record_in,
    room_for_tensors,
)
from retape.engines.eager._record_bytes import analysis_bytes, record_size
from retape.engines.eager.analysis._columns import Columns, crossing
from retape.engines.eager.analysis._cotangent_bytes import (
    note_sums_apart,
    state_bytes,
    step_cotangents,
    sum_bytes,
)
from retape.engines.eager.analysis._least_memory import check_budget, least_memory
from retape.engines.eager.keep._place_snapshot import put_away
from retape.engines.eager.keep._rules import Rules
from retape.engines.eager.trace._geometry import storage_refcount

if TYPE_CHECKING:
    from retape.engines.eager.trace._run import Run

# The first gap is the budget over this: many narrow candidates at first, since a
# snapshot that turns out wide or superfluous is given up at no cost.
_FIRST_GAPS = 48
# Operators before the record is counted for the first time, and how many times as many
# each time after: so much more than is there is left for it.
_FIRST_COUNT, _NEXT_COUNT = 64, 1.05


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
    """

    def __init__(self, run: "Run", limits: Limits) -> None:
        self._run = run
        self._limits = limits
        gap = max(1, (limits.memory or 0) // _FIRST_GAPS)
        self._rules = Rules(run, gap, limits.stage)
        self.floor = self.enough = 0
        self.relieved = False
        self._again = self._lacking = 0
        self.room: int | None = limits.memory
        self.bookkeeping = self.bare = 0
        self._next_count: float = _FIRST_COUNT
        if limits.memory is not None:
            run.trace.memory = run.trace.limit = limits.memory - BACKWARD_NUMBERS
            run.trace.next_cut = self._next_count
        if limits.snapshots is not None:
            run.trace.next_cut = limits.stage

    def relieve(self) -> None:
        """Let values go until the run is within its limits, or nothing is left."""
        if self._limits.snapshots is not None:
            self._rules.count_snapshots(self._limits.snapshots)
            return
        trace, tally = self._run.trace, self._run.tally
        tally.peak = max(tally.peak, trace.counter.live)
        if len(trace.steps) >= self._next_count:
            self._count_record()
        if trace.counter.live > trace.limit:
            trace.held.settle()
        while trace.counter.live > trace.limit and self._rules.free_some():
            self.relieved = True
        if self.room is None or trace.counter.live <= trace.limit:
            return
        excess = trace.in_flight.wait_for(lambda: trace.counter.live - trace.limit)
        if excess > 0:
            self.floor = max(self.floor, self.room + int(excess))

    def put_away(self) -> None:
        """Move what snapshots hold into the store, if there is one."""
        put_away(self._run.trace, self._run.trace.snapshots)

    def lacks(self, nbytes: int) -> None:
        """Bytes that a policy keeps could not be kept: the budget is too small.

        At least they have to be added, and room for all of them beside what the run
        takes otherwise is enough.
        """
        if nbytes and self.room is not None:
            self.relieved, self._lacking = True, self._lacking + nbytes
            self.floor = max(self.floor, self.room + nbytes)

    def leave_to_record(self, bare: int, notes: int = 0) -> None:
        """From now on tensors have what a record of so many bytes leaves them.

        Its notes on what is held now go with that, so no more of it has to go than
        makes room for the rest and its notes. The budget is the accelerator's where
        tensors are on one, and the record is not.
        """
        memory = self._limits.memory
        if memory is None or self.room is None:
            return
        trace = self._run.trace
        live, on_host = trace.counter.live, trace.on_host
        self.bookkeeping = record_in(memory, bare, notes, live) if on_host else 0
        room = room_for_tensors(memory, self.bookkeeping)
        trace.memory += room - self.room
        trace.limit += room - self.room
        self.room = room

    def _count_record(self) -> None:
        """Leave to the record what it will take when it is counted next."""
        run = self._run
        if not run.trace.on_host:  # none of it is in an accelerator's budget
            self._next_count = run.trace.next_cut = math.inf
            self.leave_to_record(0)
            return
        size = record_size(run)
        self.leave_to_record(
            round(_NEXT_COUNT * size.bare), round(_NEXT_COUNT * size.notes)
        )
        self._next_count = math.ceil(_NEXT_COUNT * len(run.trace.steps))
        run.trace.next_cut = self._next_count

    def make_room(self, nbytes: int) -> None:
        """Let values go for an operator that is about to take so many bytes."""
        trace = self._run.trace
        if trace.counter.live + nbytes > trace.memory:
            trace.held.settle()
        while trace.counter.live + nbytes > trace.memory and self._rules.free_some():
            self.relieved = True

    def finish(self) -> None:
        """The run is over: others may now write where the trace does not see it."""
        trace = self._run.trace
        trace.held.settle()
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
            self._rules.drop_tail(len(trace.steps) + 1)
        copied = self._part_with_program()
        if self.enough:
            # What the program holds, too, is computed again, one value at a time.
            self.enough += self._again
            if not self.relieved:
                most = self._limits.memory or self.enough
                enough = ample_budget(self.enough, self.bookkeeping)
                self._run.tally.peak = min(enough + copied, most)
        schedule = self._rules.schedule(self._why())
        self._run.tally.schedule = lambda: schedule
        self.put_away()

    def _part_with_program(self) -> int:
        """Share no storage with the program, which may write unseen from now on.

        What fits is copied (Rule 1), and the rest let go: LSTM cells whose states the
        program kept ran 0.55 of a forward again in any memory.

        Returns:
            The bytes of the copies.
        """
        trace, copied = self._run.trace, 0
        free: float | None = None if self.room is not None else 0
        for slot, storage in list(trace.held.storages.items()):
            if trace.noted(slot).received and trace.last_read[slot] < 0:
                # It may still be on its way. As in plain PyTorch, what autograd saved
                # of it is the tensor itself.
                if not trace.noted(slot).saved:
                    trace.forget_received(slot)
            elif storage_refcount(storage) > 1:
                free = self._free() if free is None else free
                self._again = max(self._again, trace.nbytes[slot])
                if copied + trace.nbytes[slot] <= free:
                    copied += trace.nbytes[slot]
                    trace.hold_copy(slot, storage)
                else:
                    trace.separate(slot)
        for slot, storage in list(trace.tail.partial.items()):
            if storage_refcount(storage) > 1:
                trace.drop_from_tail(slot)
                self._again = max(self._again, trace.nbytes[slot])
        return copied

    def _why(self) -> str:
        """Who has decided what is kept, in a sentence."""
        limits, plan = self._limits, self._run.tally.plan
        if self._run.names is not None:
            return (
                "The policy decided by the names of regions; what it does not name is "
                "kept while it fits (Rules 1 to 4)."
            )
        if limits.memory is None:
            return (
                f"At most {limits.snapshots} snapshots are held, about as far apart as "
                "they can be (Rule 5)."
            )
        if plan is not None:
            did = f"held {plan.excess} bytes more than" if plan.excess else "did not do"
            return (
                f"The plan was left, since the program {did} what was measured before: "
                "from there on rules decided."
            )
        if not self.relieved:
            return "Everything that autograd saved fits, so all of it is kept (Rule 1)."
        return (
            f"No plan in {limits.memory} bytes is followed, so rules decided: what was "
            "saved first is let go first (Rules 2 to 4)."
        )

    def _end_of_record(self) -> None:
        """The record has its last size: it is what the report says."""
        run = self._run
        self._next_count = run.trace.next_cut = float("inf")
        size = run.tally.record = record_size(run)
        bare = size.bare + analysis_bytes(run)
        self.leave_to_record(bare, size.notes)
        if self.bookkeeping:
            self.bare = bare

    def _bytes_of_all(self, room: int) -> int:
        """Bytes in which all values can be kept, and the backward done."""
        trace = self._run.trace
        reserved = room - trace.memory
        forward = max(trace.counter.peak, trace.counter.live) + trace.largest
        backward = trace.memory + self._reverse_excess()
        return math.ceil(reserved + max(forward, backward))

    def _leave_room_for_sums(self) -> None:
        """Now it is known which parameters are read more than once."""
        trace = self._run.trace
        note_sums_apart(trace)
        first = {each.first_read for each in trace.notes.values() if each.apart >= 0}
        room = max((step_cotangents(trace, step) for step in first), default=0)
        trace.memory -= sum_bytes(trace) + state_bytes(trace)
        trace.limit = trace.memory - max(trace.largest, room)

    def _leave_room_for_waiting(self) -> None:
        """Where much is read late, cotangents come faster than the tail goes."""
        trace = self._run.trace
        most = int(Columns.of(trace).waiting_beside.max())
        if trace.counter.live + trace.largest + most <= trace.memory:
            return
        while (excess := self._reverse_excess()) > 0:
            goal, before = trace.counter.live - excess, trace.counter.live
            while trace.counter.live > goal and self._rules.free_some():
                self.relieved = True
            if trace.counter.live == before:
                return

    def _free(self) -> float:
        """Bytes that nothing needs, neither now nor at any place of the backward."""
        trace = self._run.trace
        return min(trace.limit - trace.counter.live, -self._reverse_excess())

    def _reverse_excess(self) -> float:
        """Bytes beyond the memory at the worst place of the backward."""
        trace, columns = self._run.trace, Columns.of(self._run.trace)
        tail, length = trace.tail.steps, columns.length + 2
        slots, steps = (
            np.fromiter(each, np.int64, len(tail)) for each in (tail, tail.values())
        )
        end = np.full(len(tail), length)
        # What is saved at a step is there until the backward has gone through it.
        there = crossing(steps, end, columns.nbytes[slots], length)
        most = int((columns.waiting_beside + there).max())
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
            room, floor = room_for_tensors(memory, self.bare), self.floor
            if self._lacking:
                more = self._lacking + self._run.trace.largest
                floor = max(floor, least_memory(self._run) + more)
            check_budget(self._run, memory, room, self.bare, floor, self.relieved)

"""Choose snapshots during a forward run of unknown length, within a budget.

Rule 1. Everything that autograd saves is kept while it fits: that is the tail. At the
end what the program holds, too, which it may overwrite, is copied as far as that fits.

Rule 2. When bytes run out, what was saved first is let go first: a snapshot is put at
the narrowest position of the next gap, and the values before it are let go, part by
part. They will be run again from the snapshot before. Where what crosses the gap is
held no more, the snapshot is of the present: it always has all that is read after it.

Rule 3. A gap is at most as long as what remains of the tail, because its values will be
run again in the room that the tail leaves once it has been reversed.

Rule 4. Snapshots take at most two thirds of the memory, and no more than two gaps'
bytes while the tail has as much. Beyond it every other one is given up, of each pair
the wider one, and the gap doubles: the spacing that needs no count of the steps. In a
store they take no memory, and are kept.

Rule 5. Where snapshots are counted and not bytes, the same is done by their number.

Rule 6. In the backward, a gap is run again at once if what it saves fits. If not, the
schedule of least cost is found for it and all that lies before, which may give
snapshots up. Where there is no room for any, the last part of the gap that fits is run
again, with snapshots planted on the way at binomial splits.
"""

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

from retape.engines.eager.keep._place_snapshot import (
    merge_snapshot,
    narrowest,
    place_snapshot,
    put_away,
)
from retape.engines.eager.trace._report import Schedule, chain_of

if TYPE_CHECKING:
    from retape.engines.eager.trace._run import Run

# Steps after a position by which most of what crosses it has been read.
_LOOKAHEAD = 4
# Snapshots may take this share of the memory. Were they to take all of it, nothing
# would be left in which to reverse the last gap; a third is what d = 2, alpha = 1 need.
_SNAPSHOT_SHARE = 2 / 3


class Rules:
    """What to let go next, and where snapshots come, without a plan."""

    def __init__(self, run: "Run", gap: int, spacing: int) -> None:
        """Begin with gaps of so many bytes, or of so many steps."""
        self._run = run
        self._gap = self._part = gap
        self._spacing = spacing
        self._measured: tuple[tuple[int, ...], int] = ((), 0)

    def schedule(self, why: str) -> Schedule:
        """What these rules have decided, as a plan would say it."""
        run, trace = self._run, self._run.trace
        length = len(trace.steps)
        if run.names is not None:
            return self._schedule_of_regions(length, why)
        # Values go in the order of their saving: behind the first kept one, all are.
        kept = next(iter(trace.tail.steps.values()), length)
        sums = {s.position: s.saved for s in trace.snapshots if s.position < kept}
        sums.setdefault(kept, trace.saved - trace.tail.nbytes)
        sums[length] = trace.saved
        cuts = sorted(sums)
        saved = [max(0, sums[b] - sums[a]) for a, b in pairwise(cuts)]
        again = cuts.index(kept)
        return chain_of(cuts, saved, range(again, len(saved)), why)

    def _schedule_of_regions(self, length: int, why: str) -> Schedule:
        """The same where regions were let go, or kept, by their names."""
        run, trace = self._run, self._run.trace
        run.settle_places()
        cuts = sorted({*(each.position for each in trace.snapshots), length})
        slots: list[set[int]] = [set() for _ in cuts[1:]]
        for number, step in enumerate(run.places):
            if run.alive[number]:
                unit = min(bisect_right(cuts, step), len(slots)) - 1
                slots[unit].add(run.slot_of(number))
        saved = [sum(trace.nbytes[slot] for slot in each) for each in slots]
        there = trace.held.storages.keys()
        kept = [unit for unit, each in enumerate(slots) if each <= there]
        return chain_of(cuts, saved, kept, why)

    def free_some(self) -> bool:
        """Let something go.

        Returns:
            Whether there was anything to be let go.
        """
        trace = self._run.trace
        if trace.limit <= 0 and trace.tail.steps:
            # No snapshot would fit. To look for its place at each operator took
            # `estimate` 20 ms a step of a loop of 3,200, and 8 of one of 400.
            self.drop_tail(len(trace.steps) + 1)
            return True
        if self._drop_before_opened():
            return True
        if trace.tail.nbytes >= 2 * self._gap and self._seal():  # Rules 2 and 3
            return True
        # In a store they take no memory, and none is given up.
        if trace.held.elsewhere is None and len(trace.snapshots) > 2:
            held = self._snapshot_bytes()
            if held >= 2 * self._gap or held > _SNAPSHOT_SHARE * trace.limit:
                return self._thin()  # Rule 4
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

    def count_snapshots(self, most: int) -> None:
        """End a gap of `spacing` steps; beyond `most`, double the spacing (Rule 5)."""
        trace = self._run.trace
        self._place(trace.snapshots[-1].position, len(trace.steps))
        self.drop_tail(trace.snapshots[-1].position)
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
        """End a gap at its narrowest position and let what lies before go (Rule 2)."""
        trace = self._run.trace
        begin = trace.snapshots[-1].position
        end = self._end_of_gap(begin, self._gap)
        if end is None:
            return False
        end = self._place(begin, end)
        steps, before = trace.tail.steps, 0
        for slot, step in steps.items():
            if step >= end:
                break
            before += trace.nbytes[slot]
        if 1.2 * sum(trace.nbytes[slot] for slot in trace.opened.slots) > before:
            self._gap *= 2  # the snapshot holds all of what was to be let go
        trace.opened.saved = trace.saved - trace.tail.nbytes + before
        return self._drop_before_opened() or True

    def _drop_before_opened(self) -> bool:
        """Let go of a part of the tail that lies before the last snapshot.

        It can be run again from the one before. No more goes at a time than the first
        gap had: a GPT in nine tenths of its memory let go of a fourth at once.
        """
        trace = self._run.trace
        goal = trace.tail.nbytes - self._part
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
        twice as long, and in little room the values are gone. A snapshot of the present
        collects all that is read from now on. One that lacked something would be worth
        nothing and end a gap all the same: a chain of 60 layers ran 1,798 operators of
        122 again in a budget in which it now runs 374.

        Returns:
            The step before which the tail is let go: a gap's bytes, also where the
            snapshot lies further on.
        """
        trace = self._run.trace
        present = len(trace.steps)
        position, missing = narrowest(trace, begin, end)
        if missing:
            end = min(2 * end - begin, max(end, present - _LOOKAHEAD))
            position, missing = narrowest(trace, begin, end)
        if missing:
            position = present
        place_snapshot(trace, position)
        put_away(trace, trace.snapshots[:-1])
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

    def drop_tail(self, before: int) -> None:
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
        """Give up every other snapshot, of each pair the wider one (Rule 4)."""
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

"""The bytes that running a program again takes, up to each of its positions."""

from array import array
from collections import defaultdict
from collections.abc import Collection, Sequence

from retape.engines.eager.analysis._columns import Columns
from retape.engines.eager.trace._step import made_by
from retape.engines.eager.trace._trace import Trace


class Forerun:
    """The most bytes that are there at once if a program is run up to each position.

    A value is there from the step that makes it to the last one before that position
    that reads it. When a position is passed the reads there come in addition: they are
    bytes at all steps since the read before. Of the steps so far only those matter
    that no later one surpasses, since what is added to a step is added to all that
    follow it. These *tops* are a list with falling values, kept as differences.

    Attributes:
        most: The most bytes at once of the steps so far.
    """

    def __init__(self, trace: Trace, saved: Collection[int]) -> None:
        self._trace, self._saved = trace, frozenset(saved)
        columns = Columns.of(trace)
        self._kernel = columns.kernel.tolist()
        self._taken_over: defaultdict[int, set[int]] = defaultdict(set)
        for index, slot in columns.taken_over.tolist():
            self._taken_over[index].add(slot)
        self._last = list(trace.producer)
        self.most = 0
        # Of each top, by how much the one before it is larger, and which that is.
        self._drop: dict[int, int] = {}
        self._before: dict[int, int] = {}
        # By step, a top that is the first one after it; followed up and made shorter.
        self._next = array("q", range(len(trace.steps) + 1))
        self._latest, self._value = -1, 0

    def want(self, slots: Collection[int]) -> None:
        """These are to be there at the present position."""
        for slot in slots:
            self._use(slot, self._latest)

    def run(self, index: int) -> None:
        """Run the next step."""
        trace, step = self._trace, self._trace.steps[index]
        read = {slot for slot in step.reads if trace.producer[slot] >= 0}
        for slot in read:
            self._use(slot, index)
        made = made_by(step)
        taken = read.intersection(self._taken_over[index]) - self._saved
        there = sum(trace.nbytes[slot] for slot in (read - taken) | set(made))
        self._push(index, there + self._kernel[index])

    def _use(self, slot: int, index: int) -> None:
        """A slot is there after its last use so far, up to a step."""
        last = self._last[slot]
        if last < index:
            self._last[slot] = index
            self._add(last + 1, self._trace.nbytes[slot])

    def _add(self, first: int, nbytes: int) -> None:
        """Add bytes to all steps so far from one on."""
        if first > self._latest:
            return
        self._value += nbytes
        top = self._top_after(first)
        if top in self._before:
            self._drop[top] -= nbytes
            self._merge(top)
        else:
            self.most += nbytes

    def _push(self, index: int, value: int) -> None:
        if self._latest < 0:
            self.most = value
        else:
            self._before[index], self._drop[index] = self._latest, self._value - value
        self._latest, self._value = index, value
        self._merge(index)

    def _merge(self, top: int) -> None:
        """Forget the tops before that one surpasses."""
        while top in self._before and self._drop[top] <= 0:
            before, drop = self._before.pop(top), self._drop.pop(top)
            self._next[before] = top
            if before in self._before:
                self._before[top] = self._before.pop(before)
                self._drop[top] = drop + self._drop.pop(before)
            else:
                self.most -= drop

    def _top_after(self, step: int) -> int:
        seen: list[int] = []
        while self._next[step] != step:
            seen.append(step)
            step = self._next[step]
        for each in seen:
            self._next[each] = step
        return step


def stage_bytes(trace: Trace, saved: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Bytes that autograd saves at one step, recomputed from the program's start.

    Args:
        trace: A recorded trace.
        saved: Pairs of a slot and the step at which it was saved.

    Returns:
        For each such step, the most bytes that are there at once.
    """
    # A slot that was saved before it had a value gets it from a later step.
    producer, last = trace.producer, len(trace.steps)
    waiting = sorted(
        saved, key=lambda each: max(each[1], producer[each[0]] + 1), reverse=True
    )
    forerun = Forerun(trace, {slot for slot, _ in saved})
    found: dict[int, int] = {}
    for index in range(last + 1):
        steps: list[int] = []
        while waiting and max(waiting[-1][1], producer[waiting[-1][0]] + 1) <= index:
            slot, step = waiting.pop()
            forerun.want([slot])
            steps.append(step)
        found.update((s, max(found.get(s, 0), forerun.most)) for s in steps)
        if index < last:
            forerun.run(index)
    return found

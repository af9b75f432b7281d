"""A record as columns, and the two sums that all questions about its bytes are.

A value is there from one position to another. How many bytes cross a position, wait
beside a step or are held at once while some steps run again is asked of other values
each time, and always in one of two ways: `crossing` says how many bytes are there at
each position, `peak` how many there are at most.
"""

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any
from weakref import ref

import numpy as np

from retape.engines.eager.analysis._cotangent_bytes import cotangent_bytes, kernel_bytes
from retape.engines.eager.trace._step import Signature, made_by
from retape.engines.eager.trace._trace import Trace

# Positions and slots: a record of two thousand million operators is not to be expected.
_INDEX = np.int32


def crossing(first: Any, stop: Any, nbytes: Any, length: int) -> Any:
    """For each of `length` positions, the bytes of the values that are there.

    Args:
        first: For each value, the first position at which it is there.
        stop: The first one at which it is there no more.
        nbytes: Its size.
        length: The number of positions.

    Examples:
        >>> crossing(np.array([0, 1]), np.array([2, 4]), np.array([10, 5]), 5).tolist()
        [10, 15, 5, 5, 0]
    """
    change = np.bincount(first, nbytes, length + 1)[: length + 1]
    change -= np.bincount(np.minimum(stop, length), nbytes, length + 1)
    return np.cumsum(change[:length]).astype(np.int64)


def peak(first: Any, last: Any, nbytes: Any, kernel: Any) -> int:
    """The most bytes that are there at once.

    Args:
        first, last: For each value, the positions from which and to which it is there.
        nbytes: Its size.
        kernel: For each position, the bytes that are there beside values.
    """
    there = crossing(first, last + 1, nbytes, len(kernel))
    return int((there + kernel).max(initial=0))


class Columns:
    """What the steps of a record read, make and take, as arrays.

    Each is made when it is first asked for.

    Attributes:
        length: The number of steps.
        made: For each slot, the step that made it, or -1.
        last_read: For each slot, the last step that read it or after which autograd
            saved it.
        nbytes: For each slot, its bytes.
    """

    def __init__(self, trace: Trace) -> None:
        # The trace holds its columns, and must go without waiting for the collector.
        self._ref = ref(trace)
        self.length, self._slots = len(trace.steps), len(trace.producer)
        self.made = np.array(trace.producer, dtype=_INDEX)
        self.last_read = np.array(trace.last_read, dtype=_INDEX)
        self.nbytes = np.array(trace.nbytes, dtype=np.int64)

    @classmethod
    def of(cls, trace: Trace) -> "Columns":
        """The columns of a record, made again where it has grown."""
        found = trace.columns
        sizes = len(trace.steps), len(trace.producer)
        if found is None or (found.length, found._slots) != sizes:
            found = trace.columns = cls(trace)
        return found

    @property
    def _trace(self) -> Trace:
        trace = self._ref()
        assert trace is not None
        return trace

    @cached_property
    def cotangent(self) -> Any:
        """For each slot, the bytes of its cotangent; 0 for what gets none.

        Those are masks and indices, a kernel's workspace, and all that is made where no
        gradient goes through.
        """
        inner = {
            root: root.dtype.is_floating_point or root.dtype.is_complex
            for root in set(self._trace.roots)
        }
        passive = self._of_signatures(lambda each: each.passive)
        gets = np.array([inner[root] for root in self._trace.roots], dtype=bool)
        gets &= self.made >= 0
        gets[gets] = passive[self.made[gets]] == 0
        return np.where(gets, self.nbytes, 0)

    @cached_property
    def waiting(self) -> Any:
        """For each position, the bytes made before it and read at it or after it.

        When the backward comes to a step, the cotangents of these wait.
        """
        return self._cotangents_between(1)

    @cached_property
    def waiting_beside(self) -> Any:
        """For each position, the bytes made before it and read after it.

        These cotangents wait while the backward goes through the step.
        """
        return self._cotangents_between(0)

    def _cotangents_between(self, more: int) -> Any:
        """The cotangents of what is made before a position and read well after it."""
        made, stop = self.made, self.last_read + more
        some = np.flatnonzero((self.cotangent > 0) & (stop > made + 1))
        return crossing(
            made[some] + 1, stop[some], self.cotangent[some], self.length + 2
        )

    @cached_property
    def narrow(self) -> int:
        """The most bytes that are made before a position and used at it or after it."""
        some = np.flatnonzero((self.made >= 0) & (self.last_read > self.made))
        used = self.made[some] + 1, self.last_read[some] + 1
        return int(crossing(*used, self.nbytes[some], self.length + 1).max(initial=0))

    @cached_property
    def made_bytes(self) -> Any:
        """For each step, the bytes of what it makes."""
        some = self.made >= 0
        found = np.bincount(self.made[some], self.nbytes[some], self.length)
        return found.astype(np.int64)

    @cached_property
    def results(self) -> Any:
        """For each step, those of them that are no workspace of its kernel."""
        return self.made_bytes - self._of_signatures(lambda each: each.scratch_bytes)

    @cached_property
    def begins(self) -> Any:
        """For each step, where its reads begin among all; in the end, their number."""
        counts = np.fromiter(map(len, self._reads()), np.int64, self.length)
        return np.concatenate(([0], np.cumsum(counts)))

    @cached_property
    def read(self) -> Any:
        """The slots that steps read, in order."""
        flat = chain.from_iterable(self._reads())
        return np.fromiter(flat, _INDEX, int(self.begins[-1]))

    @cached_property
    def reader(self) -> Any:
        """For each of these reads, the step."""
        steps = np.arange(self.length, dtype=_INDEX)
        return np.repeat(steps, np.diff(self.begins))

    def _reads(self) -> Any:
        return map(itemgetter(1), self._trace.steps)

    @cached_property
    def kernel(self) -> Any:
        """For each step, the bytes that its kernel takes for itself while it runs."""
        trace, found = self._trace, self._of_signatures(lambda each: each.workspace)
        copying = self._of_signatures(lambda each: each.copying)
        for index in np.flatnonzero(copying).tolist():
            step = trace.steps[index]
            found[index] = kernel_bytes(
                trace, step.signature, step.reads, made_by(step)
            )
        return found

    @cached_property
    def reverse(self) -> Any:
        """For each step, the bytes that going back through it may take at once.

        A loop asks about the same operators on the same sizes over and over.
        """
        trace, known = self._trace, dict[Any, int]()
        given = 2 * self.nbytes[self.read] + (self.made[self.read] < 0)
        begins, notes = self.begins.tolist(), trace.notes.items()
        apart = {slot for slot, note in notes if note.apart >= 0}
        found = np.zeros(self.length, dtype=np.int64)
        for index, (signature, reads, first, writes) in enumerate(trace.steps):
            if signature.passive:
                continue
            end = first + len(signature.outputs) + len(writes)
            # One that reads a value several times, or a part of a sum, stands alone.
            alone = len(set(reads)) < len(reads) or not apart.isdisjoint(reads)
            key = (
                signature,
                given[begins[index] : begins[index + 1]].tobytes(),
                self.nbytes[first:end].tobytes(),
                index if alone else -1,
            )
            nbytes = known.get(key)
            if nbytes is None:
                made = range(first, end)
                nbytes = cotangent_bytes(trace, index, signature, reads, made)
                known[key] = nbytes
            found[index] = nbytes
        return found

    @cached_property
    def going_back(self) -> Any:
        """For each step, the most bytes of cotangents while the backward goes through.

        What is read later, too, has a cotangent already, and gets a second one.
        """
        given = map(attrgetter("signature.differentiable"), self._trace.steps)
        flags = np.fromiter(chain.from_iterable(given), bool, len(self.read))
        last = flags & (self.last_read[self.read] == self.reader)
        slots = np.unique(self.read[last])
        first = np.bincount(self.last_read[slots], self.cotangent[slots], self.length)
        waiting = self.waiting[: self.length] - first.astype(np.int64)
        return self.reverse + np.maximum(0, waiting)

    def waiting_at(self, position: int) -> int:
        """The bytes of cotangents that wait when the backward comes to a position."""
        own = self.results[position] if position < self.length else 0
        return int(self.waiting[position] + own)

    def first_slot(self, step: int) -> int:
        """The first slot made at or after a step."""
        return self._trace.first_slot(step)

    def _of_signatures(self, ask: Callable[[Signature], int]) -> Any:
        """For each step, a number of its signature."""
        signatures = list(map(itemgetter(0), self._trace.steps))
        known = {each: int(ask(each)) for each in set(signatures)}
        return np.fromiter(map(known.__getitem__, signatures), np.int64, self.length)

    @cached_property
    def taken_over(self) -> Any:
        """Pairs of a step and a slot whose storage it writes its result into.

        One that is resized gets new room while the old is there.
        """
        nbytes = self._trace.nbytes
        pairs = [
            (index, old)
            for index, step in enumerate(self._trace.steps)
            if step.writes
            for old, new in step.writes
            if nbytes[old] == nbytes[new]
        ]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)


class Rerun:
    """Some steps that run again, in order, and the uses of what they make.

    Attributes:
        low: The first slot that may be made by them.
        steps: The steps.
        first: For each slot from `low` on, the place among the steps of the one that
            makes it, or -1.
        last: The place of the last one that uses it: at least that one.
        nbytes: The bytes of each.
    """

    def __init__(self, columns: Columns, steps: Sequence[int]) -> None:
        self._columns = columns
        self.steps = np.asarray(steps, dtype=np.int64)
        begin, end = (steps[0], steps[-1] + 1) if len(steps) else (0, 0)
        self._begin, self._end = begin, end
        # One more, found by the index -1, for what is none of these steps.
        self._places = np.full(end - begin + 1, -1)
        self._places[self.steps - begin] = np.arange(len(steps))
        low = self.low = columns.first_slot(begin)
        high = columns.first_slot(end)
        self.first = self._places[np.maximum(columns.made[low:high] - begin, -1)]
        self.nbytes = columns.nbytes[low:high]
        reads = slice(columns.begins[begin], columns.begins[end])
        place = self._places[columns.reader[reads] - begin]
        some = np.flatnonzero(place >= 0)
        slots = np.maximum(columns.read[reads][some] - low, -1)
        last = np.append(self.first, -1)
        # Of a slot that is given several places the last one stays.
        last[slots] = place[some]
        self.last = np.where(self.first < 0, -1, last[:-1])

    @cached_property
    def kernel(self) -> Any:
        """For each step, the bytes that its kernel takes for itself."""
        return self._columns.kernel[self.steps]

    def among(self, slots: Collection[int]) -> Any:
        """The places of some slots among those from `low` on."""
        chosen = np.fromiter(slots, np.int64, len(slots)) - self.low
        return chosen[(chosen >= 0) & (chosen < len(self.first))]

    def peak(self, wanted: Collection[int], until: Any = None) -> int:
        """The most bytes that are held at once, what is held before left out.

        Args:
            wanted: Slots that are held to the end.
            until: For each, the place up to which it is held instead; -1 if it is not.

        Examples:
            A chain of which nothing is held needs two of its values at a time, whatever
            its length, if the last one is wanted.
        """
        last, over = self.last.copy(), self._columns.taken_over
        if len(over):
            low, high = np.searchsorted(over[:, 0], (self._begin, self._end))
            place, old = (over[low:high] - (self._begin, self.low)).T
            place = self._places[place]
            there = (place >= 0) & (old >= 0)
            last[old[there]] = np.minimum(last[old[there]], place[there] - 1)
        held = len(self.steps) - 1 if until is None else until
        among = self.among(wanted)
        last[among] = np.maximum(self.last[among], held)
        mine = np.flatnonzero(self.first >= 0)
        return peak(self.first[mine], last[mine], self.nbytes[mine], self.kernel)

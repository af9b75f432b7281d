"""Liveness: the bytes that cross each position of a span, and its narrow places."""

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property

import torch

from retape.engines.eager.analysis._cotangent_bytes import cotangent_bytes, kernel_bytes
from retape.engines.eager.trace._native_handle import native
from retape.engines.eager.trace._step import made_by
from retape.engines.eager.trace._trace import Trace
from retape.schedule._running_sums import running_sums


def waiting_bytes(trace: Trace) -> "array[int]":
    """For each step, the bytes made before it and read by it or after it.

    When the backward comes to a step, the cotangents of these wait. What gets none,
    such as the mask of a dropout, is left out.
    """
    module = native()
    last, sizes = len(trace.steps), _cotangent_sizes(trace)
    if module is not None:
        found = module.waiting_bytes(
            trace.steps, trace.producer, trace.last_read, sizes
        )
        return array("q", found)
    uses = zip(trace.producer, trace.last_read, sizes, strict=True)
    waiting = (
        (made + 1, min(read, last) + 1, nbytes)
        for made, read, nbytes in uses
        if 0 <= made < read and not trace.steps[made].signature.passive
    )
    return array("q", running_sums(waiting, last + 2))


def _cotangent_sizes(trace: Trace) -> list[int]:
    """Of each slot, the bytes of its cotangent: a kernel's workspace gets none."""
    if not any(each.scratch_bytes for each in trace.signatures.values()):
        return trace.nbytes
    sizes = zip(trace.nbytes, trace.roots, strict=True)
    return [0 if root.dtype is torch.uint8 else nbytes for nbytes, root in sizes]


def most_crossing(trace: Trace) -> int:
    """The most bytes that are made before a position and used at it or after it."""
    last = len(trace.steps)
    uses = zip(trace.producer, trace.last_read, trace.nbytes, strict=True)
    crossing = (
        (made + 1, min(read, last) + 1, nbytes)
        for made, read, nbytes in uses
        if 0 <= made < read
    )
    return max(running_sums(crossing, last + 1))


def waiting_beside(trace: Trace) -> list[int]:
    """For each step, the bytes made before it and read after it, not by it alone.

    These cotangents wait while the backward goes through the step.
    """
    uses = zip(trace.producer, trace.last_read, _cotangent_sizes(trace), strict=True)
    beside = (
        (made + 1, read, nbytes)
        for made, read, nbytes in uses
        if 0 <= made < read - 1 and not trace.steps[made].signature.passive
    )
    return running_sums(beside, len(trace.steps) + 2)


def step_cotangents(trace: Trace, index: int) -> int:
    """The bytes that going back through a recorded step may need at once."""
    step = trace.steps[index]
    return cotangent_bytes(trace, index, step.signature, step.reads, made_by(step))


class Span:
    """Some steps of a trace, with the uses of the slots that they make.

    `saved` has pairs of a slot and a step at which autograd saved it, in order;
    `waiting` is what `waiting_bytes` says of the trace.

    Attributes:
        steps: The steps that have to run to compute what is wanted.
        transient: Bytes that a replay needs beside what is wanted of it.
        reverse: Bytes of the cotangents with which autograd goes back through a step.
    """

    def __init__(
        self,
        trace: Trace,
        start: int,
        end: int,
        steps: Sequence[int],
        saved: Sequence[tuple[int, int]],
        waiting: Sequence[int],
    ) -> None:
        self._trace, self._waiting = trace, waiting
        self._start, self._end = start, end
        # As lists of numbers these took 72 bytes more an operator while a gap is there.
        self.steps = array("q", steps)
        # By slot, the last step at which it was saved.
        wanted = self._wanted = dict(saved)
        self._saved = sorted((step, trace.nbytes[s]) for s, step in wanted.items())
        self._saved_steps = [step for step, _ in self._saved]
        self._sums = [0]
        for _, nbytes in self._saved:
            self._sums.append(self._sums[-1] + nbytes)
        self._earlier = self._saved_before(saved)
        module = native()
        if module is not None:
            widths, self.transient, self.reverse = module.span_sums(
                trace.steps, trace.producer, trace.nbytes, trace.last_read,
                trace.apart, list(steps), dict(wanted), start, end,
                list(waiting[start : end + 1]),
            )  # fmt: skip
        else:
            widths = self._crossing_bytes({})
            self.transient = self._replay_bytes(wanted)
            self.reverse = self._reverse_bytes()
        self.widths = array("q", widths)

    def _saved_before(
        self, saved: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int, int]]:
        """Repeated saves: when, at which later step, and the bytes, in order."""
        found: list[tuple[int, int, int]] = []
        after: dict[int, int] = {}
        for slot, step in reversed(saved):
            if after.get(slot, step) > step:
                found.append((step, after[slot], self._trace.nbytes[slot]))
            after[slot] = step
        return found[::-1]

    @cached_property
    def _last_use(self) -> dict[int, int]:
        """For each slot, the last step that reads it or at which it was saved."""
        last, trace = dict(self._wanted), self._trace
        for index in self.steps:
            for slot in trace.steps[index].reads:
                if trace.producer[slot] >= 0 and last.get(slot, -1) < index:
                    last[slot] = index
        return last

    def _crossing_bytes(self, without: Mapping[int, int]) -> list[int]:
        """For each position from start to end, the bytes made before and used after."""
        trace, start = self._trace, self._start
        length = self._end - start
        crossing: list[tuple[int, int, int]] = []
        for index in self.steps:
            for slot in made_by(trace.steps[index]):
                used = self._last_use.get(slot, -1)
                if used > index >= start and slot not in without:
                    stop = min(used, self._end) + 1 - start
                    crossing.append((index + 1 - start, stop, trace.nbytes[slot]))
        return running_sums(crossing, length + 1)

    def _replay_bytes(self, wanted: Mapping[int, int]) -> int:
        """The most bytes that a replay holds at once of what is not wanted."""
        trace, start = self._trace, self._start
        unwanted, most = self._crossing_bytes(wanted), 0
        for index in self.steps:
            step, slots = trace.steps[index], made_by(trace.steps[index])
            made = sum(trace.nbytes[slot] for slot in slots if slot not in wanted)
            made += kernel_bytes(trace, step.signature, step.reads, slots)
            if index >= start:
                made += unwanted[index - start]
            most = max(most, made)
        return most

    def _reverse_bytes(self) -> int:
        """The most bytes that going back through a step of the span takes."""
        trace, most = self._trace, 0
        last_read = trace.last_read
        for index in range(self._start, min(self._end + 1, len(trace.steps))):
            step = trace.steps[index]
            given = zip(step.reads, step.signature.differentiable, strict=True)
            # What is read later, too, has a cotangent already, and gets a second one.
            first = {
                slot
                for slot, flag in given
                if flag and trace.producer[slot] >= 0 and last_read[slot] <= index
            }
            waiting = self._waiting[index] - sum(trace.nbytes[slot] for slot in first)
            most = max(most, step_cotangents(trace, index) + max(0, waiting))
        return most

    def margin(self, position: int) -> int:
        """Bytes needed beside what is held and wanted, to reverse up to a position.

        During the replay the cotangents of what crosses the position wait.
        """
        return max(self.transient + self.waiting_at(position), self.reverse)

    def waiting_at(self, position: int) -> int:
        """The bytes of cotangents that wait when the backward comes to a position."""
        waiting = self._waiting[position]
        if position < len(self._trace.steps):
            step = self._trace.steps[position]
            waiting += sum(self._trace.nbytes[slot] for slot in made_by(step))
            waiting -= step.signature.scratch_bytes
        return waiting

    def crossing(self, start: int, cut: int) -> set[int]:
        """Slots made in [start, cut) and used at or after `cut`."""
        steps = self._trace.steps
        low, high = bisect_left(self.steps, start), bisect_left(self.steps, cut)
        return {
            slot
            for index in self.steps[low:high]
            for slot in made_by(steps[index])
            if self._last_use.get(slot, -1) >= cut
        }

    def saved_between(self, first: int, last: int) -> int:
        """Bytes saved by autograd between two steps, the last one included."""
        low = bisect_left(self._saved_steps, first)
        high = bisect_left(self._saved_steps, last + 1)
        earlier = self._earlier
        begin, end = (bisect_left(earlier, (step,)) for step in (first, last + 1))
        more = sum(n for _, again, n in earlier[begin:end] if again > last)
        return self._sums[high] - self._sums[low] + more

    def mean_width(self, cuts: Sequence[int]) -> float:
        """The bytes that cross a cut, on average."""
        if not cuts:
            return 0.0
        return sum(self.widths[cut - self._start] for cut in cuts) / len(cuts)

    def widest_unit(self, cuts: Sequence[int]) -> int:
        """The most bytes saved between two neighbouring cuts, and a replay's margin."""
        bounds = [self._start, *cuts, self._end + 1]
        pairs = zip(bounds, bounds[1:], strict=False)
        return max(self.saved_between(a, b - 1) for a, b in pairs)


def cut_into_units(span: Span, size: float, steps: int) -> list[int]:
    """Narrow positions, at most about `size` saved bytes or `steps` steps apart.

    Each unit is ended at the narrowest position in its second half. A unit has at
    least one step.
    """
    start, end = span._start, span._end
    cuts: list[int] = []
    begin = start
    while (limit := _reach(span, begin, size, steps)) < end:
        low = begin + max(1, (limit - begin + 1) // 2)
        best = min(
            range(low, max(low, limit) + 1), key=lambda p: (span.widths[p - start], -p)
        )
        cuts.append(best)
        begin = best
    return cuts


def _reach(span: Span, begin: int, size: float, steps: int) -> int:
    """The furthest end of a unit that begins at `begin`."""
    if size <= 0:
        return min(span._end, begin + steps)
    target = span._sums[bisect_left(span._saved_steps, begin)] + size
    index = bisect_left(span._sums, target)
    if index >= len(span._saved_steps):
        return span._end
    return min(max(begin + 1, span._saved_steps[index]), begin + steps)

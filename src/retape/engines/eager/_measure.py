"""Units of a recorded run, with their sizes and costs, for the dynamic programme.

A run that was recorded once says everything: which bytes cross which position, what
autograd saved where, how long each operator took. A program that is run again on the
same shapes makes the same slots in the same order, so a plan made of slots and
positions holds for it; `Measured.agrees` finds the program that does not.
"""

import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ._kinds import kind_of
from ._liveness import step_cotangents
from ._optimum import Unit
from ._record import kernel_bytes
from ._replay import made_by
from ._run import Run
from ._trace import Trace

_MOST_UNITS = 100
Slots = frozenset[int]


class OperatorTimer(TorchDispatchMode):
    """Times every operator that a trace records. Enter it outside of the recorder."""

    def __init__(self) -> None:
        super().__init__()
        self.trace: Trace | None = None
        self.seconds: dict[int, float] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run one operator, and wait for it where operators are only queued."""
        if self.trace is None or kind_of(func).view:
            return func(*args, **(kwargs or {}))
        begin = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        step = len(self.trace.steps)
        taken = time.perf_counter() - begin
        self.seconds[step] = self.seconds.get(step, 0.0) + taken
        return result


@dataclass(frozen=True, slots=True)
class Measured:
    """A run cut into units.

    Attributes:
        cuts: Positions at which the units begin, and the end.
        counts: At each cut, how many slots and saved tensors there were.
        states: At each cut, the slots made before and used after.
        units, widths: What the dynamic programme is given.
        kept_bytes: What is kept whatever the schedule.
    """

    cuts: tuple[int, ...]
    counts: tuple[tuple[int, int], ...]
    states: tuple[Slots, ...]
    units: tuple[Unit, ...]
    widths: tuple[tuple[int, ...], ...]
    kept_bytes: int

    def agrees(self, cut: int, run: Run) -> bool:
        """Whether a run that has come to a cut has done the same so far."""
        counts = len(run.trace.producer), len(run.handle_steps)
        return counts == self.counts[cut] and len(run.trace.steps) == self.cuts[cut]


# What follows a chain is a loss; its formula may have as many tensors of the size of
# the chain's result, while everything that is kept is there.
_LOSS_TENSORS = 4


def measure(
    run: Run, seconds: dict[int, float], boundaries: Sequence[int], result_bytes: int
) -> Measured:
    """Cut a run at the boundaries of its functions, and finer where there is room.

    Args:
        run: A recorded run whose graph is alive.
        seconds: What each operator took.
        boundaries: Positions at which a function began.
        result_bytes: Bytes of what the run returned.
    """
    view = _View(run, seconds)
    cuts = view.cut(boundaries)
    states = [view.crossing(cut) for cut in cuts]
    units = [
        view.unit(cuts[k], cuts[k + 1], states[k], states[k + 1])
        for k in range(len(cuts) - 1)
    ]
    if units:
        peak = units[-1].tape_bytes + _LOSS_TENSORS * result_bytes
        units[-1] = units[-1]._replace(reverse_peak=max(units[-1].reverse_peak, peak))
    widths = [[view.nbytes(right - left) for right in states] for left in states]
    return Measured(
        tuple(cuts),
        tuple(view.counts(cut) for cut in cuts),
        tuple(states),
        tuple(units),
        tuple(tuple(row) for row in widths),
        run.trace.kept_bytes + run.trace.sum_bytes() + _gradient_bytes(run),
    )


def _gradient_bytes(run: Run) -> int:
    """The largest gradient of a leaf: it may wait while the backward goes on."""
    nbytes = run.trace.nbytes
    return max((nbytes[slot] for slot in run.trace.first_read), default=0)


def crossing_slots(run: Run, cuts: Sequence[int]) -> tuple[Slots, ...]:
    """For each position, the slots made before and used at or after it."""
    view = _View(run, {})
    return tuple(view.crossing(cut) for cut in cuts)


class _View:
    """A trace, with the last use of each slot."""

    def __init__(self, run: Run, seconds: dict[int, float]) -> None:
        self.run, self.trace = run, run.trace
        self.length = len(run.trace.steps)
        self.saved: dict[int, list[int]] = {}
        for number, step in enumerate(run.handle_steps):
            if run.alive[number]:
                self.saved.setdefault(run.slot_of(number), []).append(step)
        self.useful = self.closure(self.saved, frozenset(), 0)
        self.last_use = {slot: steps[-1] for slot, steps in self.saved.items()}
        for index in sorted(self.useful):
            for slot in self.trace.steps[index].reads:
                self.last_use[slot] = max(index, self.last_use.get(slot, -1))
        self.cost = self._costs(seconds)
        self._previous: dict[int, int] = {}

    def nbytes(self, slots: Iterable[int]) -> int:
        return sum(self.trace.nbytes[slot] for slot in slots)

    def counts(self, cut: int) -> tuple[int, int]:
        """Slots and saved tensors that there are when a run has come to a position."""
        if cut == self.length:
            return len(self.trace.producer), len(self.run.handle_steps)
        made = made_by(self.trace.steps[cut - 1]).stop if cut else 0
        return made, bisect_left(self.run.handle_steps, cut)

    def closure(self, wanted: Iterable[int], given: Slots, floor: int) -> set[int]:
        """Steps from `floor` on that compute the wanted slots from the given ones."""
        found: set[int] = set()
        stack = [slot for slot in wanted if slot not in given]
        while stack:
            step = self.trace.producer[stack.pop()]
            if step >= floor and step not in found:
                found.add(step)
                stack += [s for s in self.trace.steps[step].reads if s not in given]
        return found

    def crossing(self, cut: int) -> Slots:
        """Slots made before a position and used at or after it."""
        producer = self.trace.producer
        uses = self.last_use.items()
        return frozenset(s for s, used in uses if -1 < producer[s] < cut <= used)

    def cut(self, boundaries: Sequence[int]) -> list[int]:
        """Positions of the units: boundaries, joined or divided by bytes saved."""
        first_saved = [0] * (self.length + 2)
        for slot, steps in self.saved.items():
            if self.trace.producer[slot] >= 0:
                first_saved[steps[0]] += self.trace.nbytes[slot]
        sums = [0]
        for nbytes in first_saved:
            sums.append(sums[-1] + nbytes)
        size = max(1.0, sums[-1] / _MOST_UNITS)
        inside = [cut for cut in boundaries if 0 < cut < self.length]
        ends = sorted({0, *inside, self.length})
        cuts = [0]
        for begin, end in zip(ends, ends[1:], strict=False):
            if sums[end] - sums[begin] >= 2 * size:
                cuts += self._divide(begin, end, sums, size)
            last = end == self.length
            if last or sums[end] - sums[cuts[-1]] >= size or len(ends) <= _MOST_UNITS:
                cuts.append(end)
        return cuts

    def _divide(self, begin: int, end: int, sums: list[int], size: float) -> list[int]:
        """Cut a function where few bytes cross, so that each part saves `size`."""
        widths = self._widths(begin, end)
        cuts: list[int] = []
        stack = [(begin, end)]
        while stack:
            low, high = stack.pop()
            total = sums[high] - sums[low]
            quarter = total / 4
            inner = [
                k
                for k in range(low + 1, high)
                if quarter <= sums[k] - sums[low] <= total - quarter
            ]
            if total >= 2 * size and inner:
                best = min(inner, key=lambda k: widths[k - begin])
                cuts.append(best)
                stack += [(low, best), (best, high)]
        return sorted(cuts)

    def _widths(self, begin: int, end: int) -> list[int]:
        change = [0] * (end - begin + 2)
        for slot, used in self.last_use.items():
            made = self.trace.producer[slot]
            if -1 < made < end and used > begin:
                change[max(made + 1, begin) - begin] += self.trace.nbytes[slot]
                change[min(used, end) + 1 - begin] -= self.trace.nbytes[slot]
        widths = [0]
        for each in change:
            widths.append(widths[-1] + each)
        return widths[1:]

    def tape(self, first: int, last: int) -> dict[int, int]:
        """Slots that autograd saved in a unit, with the step where first it did."""
        end = last + (last == self.length)
        found: dict[int, int] = {}
        for slot, steps in self.saved.items():
            within = [step for step in steps if first <= step < end]
            if within and self.trace.producer[slot] >= 0:
                found[slot] = within[0]
        return found

    def unit(self, first: int, last: int, before: Slots, after: Slots) -> Unit:
        tape, previous = self.tape(first, last), self._previous
        self._previous = tape
        both = frozenset(tape) | after
        tape_bytes = self.nbytes(tape.keys() - before)
        advance, advance_peak = self._run_again(after, before, first)
        both_cost, both_peak = self._run_again(both, before, first)
        return Unit(
            advance=advance,
            both=both_cost,
            tape=self._run_again(frozenset(tape), before, first)[0],
            tape_bytes=tape_bytes,
            more_bytes=self.nbytes(tape.keys() - previous.keys()),
            hold_bytes=self.nbytes(before - previous.keys()),
            advance_peak=advance_peak,
            tape_peak=both_peak,
            reverse_peak=self._reverse_peak(first, last, before, after, tape),
            cotangent=self.nbytes(self._floating(after)),
        )

    def _run_again(self, wanted: Slots, before: Slots, first: int) -> tuple[float, int]:
        """Cost and most bytes of computing slots from a state, that state excluded."""
        steps = sorted(self.closure(wanted, before, first))
        last_read: dict[int, int] = {}
        for index in steps:
            last_read.update(dict.fromkeys(self.trace.steps[index].reads, index))
        live = peak = 0
        alive: dict[int, int] = {}
        for index in steps:
            for slot in made_by(self.trace.steps[index]):
                alive[slot] = self.trace.nbytes[slot]
                live += alive[slot]
            step, made = self.trace.steps[index], made_by(self.trace.steps[index])
            kernel = kernel_bytes(self.trace, step.signature, step.reads, made)
            peak = max(peak, live + kernel)
            for slot in (*self.trace.steps[index].reads, *made):
                dead = slot not in wanted and last_read.get(slot, -1) <= index
                if dead and slot in alive:
                    live -= alive.pop(slot)
        return sum(self.cost.get(index, 0.0) for index in steps), peak

    def _reverse_peak(
        self, first: int, last: int, before: Slots, after: Slots, tape: dict[int, int]
    ) -> int:
        """Most bytes of tape and cotangents while a unit is reversed."""
        own = {slot: step for slot, step in tape.items() if slot not in before}
        passing = self._floating(after)
        peak = 0
        for index in range(last - 1, first - 1, -1):
            step = self.trace.steps[index]
            made = made_by(step)
            given = zip(step.reads, step.signature.differentiable, strict=True)
            reads = {s for s, flag in given if flag and self.trace.producer[s] >= 0}
            cotangents = step_cotangents(self.trace, index) + self._spare(index)
            passing -= set(made)
            waiting = self.nbytes(passing - reads)
            left = self.nbytes(s for s, saved in own.items() if saved <= index + 1)
            peak = max(peak, cotangents + waiting + left)
            if index in self.useful:
                passing |= self._floating(reads)
        return max(peak, self.nbytes(own))

    def _spare(self, index: int) -> int:
        """One tensor more, which a formula such as that of `pow` takes at its most."""
        step = self.trace.steps[index]
        kind = step.signature.kind
        if kind.lean or kind.copying or step.signature.passive:
            return 0
        return self.nbytes(made_by(step))

    def _floating(self, slots: Iterable[int]) -> set[int]:
        """Those that may get a cotangent."""
        trace = self.trace
        return {
            slot
            for slot in slots
            if (dtype := trace.roots[slot].dtype).is_floating_point or dtype.is_complex
            if not trace.steps[trace.producer[slot]].signature.passive
        }

    def _costs(self, seconds: dict[int, float]) -> dict[int, float]:
        """The median time of each operator among its like, which hides hiccups."""
        groups: dict[int, list[float]] = {}
        for index, taken in seconds.items():
            if index < self.length:
                signature = self.trace.steps[index].signature
                groups.setdefault(id(signature), []).append(taken)
        typical = {key: median(times) for key, times in groups.items()}
        return {
            index: typical[id(self.trace.steps[index].signature)]
            for index in seconds
            if index < self.length
        }

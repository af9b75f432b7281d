"""Units of a recorded run, with their sizes and costs, for the dynamic programme.

A run that was recorded once says everything: which bytes cross which position, what
autograd saved where, what each operator costs. A program that is run again on the
same shapes makes the same slots in the same order, so a plan made of slots and
positions holds for it; `Measured.agrees` finds the program that does not.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple, Self

from retape.engines.eager._limits import record_in
from retape.engines.eager._record_bytes import analysis_bytes, deep_bytes
from retape.engines.eager.analysis._cotangent_bytes import kernel_bytes
from retape.engines.eager.analysis._lifetimes import OwnPeaks
from retape.engines.eager.analysis._liveness import step_cotangents
from retape.engines.eager.analysis._operator_cost import step_costs
from retape.engines.eager.analysis._packed import Packed
from retape.engines.eager.analysis._partition import MOST_UNITS, cut_run
from retape.engines.eager.analysis._units import Unit
from retape.engines.eager.analysis._uses import Slots, Uses
from retape.engines.eager.trace._run import Run
from retape.engines.eager.trace._step import made_by
from retape.engines.eager.trace._trace import Trace
from retape.schedule._running_sums import running_sums

# What follows a chain is a loss; its formula may have as many tensors of the size of
# the chain's result, while everything that is kept is there.
_LOSS_TENSORS = 4


@dataclass(frozen=True, slots=True)
class Measured:
    """A run cut into units.

    Attributes:
        cuts: Positions at which the units begin, and the end.
        counts: At each cut, how many slots and saved tensors there were.
        marks: For each unit, the mark of what it did.
        states: At each cut, the slots made before and used after.
        units: What the dynamic programme is given, beside `widths`.
        late: At each cut, the slots that autograd saves behind it for the unit before.
        alone: Those of them that it does not save in the unit after, too.
        tapes: For each unit, the slots that autograd saves in it.
        reads: For each step, the slots that it reads.
        producer, nbytes: For each slot, the step that makes it, and its size.
        needs: For each step, the most bytes that running it may add.
        kept_bytes: What is kept whatever the schedule.
        outside_bytes: Of those, what the program itself held at the end.
        bookkeeping: What the record takes on the host, and this.
        notes: If the run was estimated, what notes on all of its values would take in
            addition; a budget in which fewer are held has fewer.
        saved_bytes: Bytes of those values.
        costs: Of the steps.
        cost: Of the whole run.
    """

    cuts: tuple[int, ...]
    counts: tuple[tuple[int, int], ...]
    marks: tuple[int, ...]
    states: Packed[Slots]
    units: tuple[Unit, ...]
    late: Packed[Slots]
    alone: Packed[Slots]
    tapes: Packed[Slots]
    reads: Packed[tuple[int, ...]]
    producer: "array[int]"
    nbytes: "array[int]"
    needs: "array[int]"
    kept_bytes: int
    outside_bytes: int
    costs: "array[int]"
    cost: int
    bookkeeping: int = 0
    notes: int = 0
    saved_bytes: int = 0

    def record_in(self, memory: int) -> int:
        """What the record and this take on the host in a budget."""
        return record_in(memory, self.bookkeeping, self.notes, self.saved_bytes)

    def widths(self) -> "list[array[int]]":
        """For two cuts, the bytes of the state at the second that the first has not.

        They would take more than all the rest, and are asked for between runs.
        """
        states, nbytes = list(self.states), self.nbytes
        return [
            array("q", [
                sum(nbytes[slot] for slot in right - left) if k > s else 0
                for k, right in enumerate(states)
            ])
            for s, left in enumerate(states)
        ]  # fmt: skip

    def agrees(self, cut: int, run: Run) -> bool:
        """Whether a run that has come to a cut has done the same in the unit before."""
        counts = len(run.trace.producer), len(run.handle_steps)
        if counts != self.counts[cut] or len(run.trace.steps) != self.cuts[cut]:
            return False
        return not cut or self.marks[cut - 1] == _mark(
            run, self.cuts[cut - 1 : cut + 1], self.counts[cut - 1 : cut + 1]
        )


class ForwardEnd(NamedTuple):
    """What a measurement needs of a forward's end, to be made after the backward.

    Attributes:
        alive: Which saved tensors there were.
        outside: Bytes that the program itself held.
        kept: Bytes that the record kept for good.
        there: By position, the slots that the program itself held there; empty if
            nobody has looked.
    """

    alive: bytes
    outside: int
    kept: int
    there: Mapping[int, Slots] = MappingProxyType({})

    @classmethod
    def of(cls, run: Run) -> Self:
        """The state of a run that has just been recorded."""
        trace = run.trace
        kept = trace.kept_bytes + trace.state_bytes()
        return cls(bytes(run.alive), outside_bytes(run), kept)


def measure(
    run: Run,
    boundaries: Sequence[int] = (),
    result_bytes: int = 0,
    most: int = MOST_UNITS,
    end: ForwardEnd | None = None,
) -> Measured:
    """Cut a run at the boundaries of its functions, and finer where there is room.

    Args:
        run: A recorded run whose graph is alive, unless there is an `end`.
        boundaries: Positions at which a function began, if it is a chain of functions.
        result_bytes: Bytes of what the run returned, if a loss of it follows.
        most: About how many units.
        end: The end of its forward, if the graph need not be alive any more.
    """
    (found,) = _with_bookkeeping(
        run, [_measure(run, boundaries, result_bytes, most, end)]
    )
    return found


def _measure(
    run: Run,
    boundaries: Sequence[int] = (),
    result_bytes: int = 0,
    most: int = MOST_UNITS,
    end: ForwardEnd | None = None,
) -> Measured:
    end = ForwardEnd.of(run) if end is None else end
    trace, uses, costs = run.trace, Uses(run, end.alive), step_costs(run.trace)
    cuts = cut_run(trace, uses, boundaries, most)
    states = uses.crossing(cuts)
    counts = [uses.counts(cut) for cut in cuts]
    measurement = _Measurement(run, uses, costs)
    parts = range(len(cuts) - 1)
    units = [
        measurement.unit(cuts[k], cuts[k + 1], states[k], states[k + 1]) for k in parts
    ]
    late = uses.late(cuts)
    alone = [
        *(late[k] - uses.tape(cuts[k], cuts[k + 1]).keys() for k in parts),
        late[-1],
    ]
    needs = [_need(run, index) for index in range(len(trace.steps))]
    own = OwnPeaks(uses, needs, end.there)
    units = [
        unit._replace(
            lingering=measurement.lingering(cuts[k], alone[k]),
            own_peak=own.of(cuts[k], cuts[k + 1], states[k], taped=True),
            own_advance_peak=own.of(cuts[k], cuts[k + 1], states[k], taped=False),
        )
        for k, unit in enumerate(units)
    ]
    if units:
        peak = units[-1].tape_bytes + _LOSS_TENSORS * result_bytes
        units[-1] = units[-1]._replace(reverse_peak=max(units[-1].reverse_peak, peak))
    return Measured(
        tuple(cuts),
        tuple(counts),
        tuple(_mark(run, cuts[k : k + 2], counts[k : k + 2]) for k in parts),
        Packed(frozenset, states),
        tuple(units),
        Packed(frozenset, late),
        Packed(frozenset, alone),
        Packed(frozenset, [uses.tape(cuts[k], cuts[k + 1]) for k in parts]),
        Packed(tuple, [step.reads for step in trace.steps]),
        array("i", trace.producer),
        array("q", trace.nbytes),
        array("q", needs),
        end.kept + _cotangents_kept(run) + end.outside,
        end.outside,
        array("q", costs),
        sum(costs),
    )


def measure_in_parts(
    run: Run, counts: Sequence[int], end: ForwardEnd | None = None
) -> list[Measured]:
    """Several partitions of one run, which have the tables of its steps in common."""
    first = _measure(run, most=counts[0], end=end)
    shared = {
        name: getattr(first, name)
        for name in ("needs", "reads", "producer", "nbytes", "costs")
    }
    others = (
        replace(_measure(run, most=each, end=end), **shared) for each in counts[1:]
    )
    return _with_bookkeeping(run, [first, *others])


def _with_bookkeeping(run: Run, found: list[Measured]) -> list[Measured]:
    """What the record takes, and all that was measured, which stays beside it.

    Or, where that takes more, analyses of the record: they have that room at its end.
    An estimate holds all, and says nothing of how much a budget has notes on: with
    those on all a Mamba had room for less than half of what fits in a megabyte.
    """
    record, trace = run.tally.record, run.trace
    taken = max(deep_bytes(found), analysis_bytes(run))
    if record is None:
        return [replace(each, bookkeeping=taken) for each in found]
    notes = record.notes() if trace.without_values else 0
    known = {
        "bookkeeping": taken + record.nbytes() - notes,
        "notes": notes,
        "saved_bytes": trace.tail.nbytes,
    }
    return [replace(each, **known) for each in found]


def whole_mark(run: Run) -> int:
    """The same for two runs that did the same."""
    ends = len(run.trace.steps), len(run.trace.producer), len(run.handle_steps)
    return _mark(run, (0, ends[0]), ((0, 0), ends[1:]))


def outside_bytes(run: Run) -> int:
    """Bytes that are there although nothing of ours holds them: the program does."""
    trace = run.trace
    held, received = trace.held.storages, trace.received
    there = [*held.values(), *trace.tail.partial.values()]
    ours = {each._cdata: each.nbytes() for each in there}
    for slot in received:  # they are among the bytes that are kept
        ours.pop(held[slot]._cdata, None)
    return max(0, trace.counter.live - trace.kept_bytes - sum(ours.values()))


def _mark(run: Run, places: Sequence[int], counts: Sequence[tuple[int, int]]) -> int:
    """The work between two positions: operators on versions, sizes, saved tensors.

    With the same operators parameters may be frozen or not.
    """
    trace, ((low, first), (high, last)) = run.trace, counts
    work = 0
    for step in islice(trace.steps, *places):
        kind = step.signature
        done = work, kind.func, kind.differentiable, step.reads, step.writes
        work = hash(done)
    return hash(
        (
            work,
            tuple(trace.nbytes[low:high]),
            tuple(run.handle_slots[first:last]),
            tuple(run.handle_steps[first:last]),
        )
    )


def _need(run: Run, index: int) -> int:
    """Bytes that a step makes, copies and works in."""
    trace, step = run.trace, run.trace.steps[index]
    made = made_by(step)
    kernel = kernel_bytes(trace, step.signature, step.reads, made)
    return kernel + sum(trace.nbytes[made.start : made.stop])


def _cotangents_kept(run: Run) -> int:
    """Sums that wait for the first read of what the program brought along, and more."""
    return run.trace.sum_bytes() + _gradient_bytes(run)


def _gradient_bytes(run: Run) -> int:
    """The largest gradient of a leaf read as a view: it waits for that of the view.

    Those of others are added up at once, before anything else is reversed.
    """
    trace = run.trace
    viewed = {
        slot
        for step in trace.steps
        for slot, seen in zip(step.reads, step.signature.geometries, strict=True)
        if slot in trace.first_read and seen is not trace.whole.get(slot)
    }
    return max((trace.nbytes[slot] for slot in viewed), default=0)


class _Measurement:
    """Computes what running and reversing each unit takes."""

    def __init__(self, run: Run, uses: Uses, cost: Sequence[int]) -> None:
        self.trace, self.uses, self.cost = run.trace, uses, cost
        self._previous: dict[int, int] = {}
        self._inner = _inner(self.trace)
        self._waiting = _waiting(self.trace, self._inner)

    def unit(self, first: int, last: int, before: Slots, after: Slots) -> Unit:
        """The numbers of a unit; units are asked for in order."""
        nbytes = self.uses.nbytes
        tape, previous = self.uses.tape(first, last), self._previous
        self._previous = tape
        advance, advance_peak = self._run_again(after, before, first)
        both, both_peak = self._run_again(frozenset(tape) | after, before, first)
        return Unit(
            advance=advance,
            both=both,
            tape=self._run_again(frozenset(tape), before, first)[0],
            tape_bytes=nbytes(tape.keys() - before),
            more_bytes=nbytes(tape.keys() - previous.keys()),
            hold_bytes=nbytes(before - previous.keys()),
            advance_peak=advance_peak,
            tape_peak=both_peak,
            reverse_peak=self._reverse_peak(first, last, before, tape),
            cotangent=self._waiting[last],
        )

    def lingering(self, cut: int, alone: Slots) -> int:
        """Bytes saved behind a cut for the unit before, while a step of this is run.

        Before a kernel that makes a workspace all is let go that can be.
        """
        kind = self.trace.steps[cut].signature.kind
        return 0 if kind.scratch else self.uses.nbytes(alone)

    def _run_again(self, wanted: Slots, before: Slots, first: int) -> tuple[int, int]:
        """Cost and most bytes of computing slots from a state, that state excluded."""
        trace = self.trace
        steps = sorted(self.uses.closure(wanted, before, first))
        last_read: dict[int, int] = {}
        for index in steps:
            last_read.update(dict.fromkeys(trace.steps[index].reads, index))
        live = peak = 0
        alive: dict[int, int] = {}
        for index in steps:
            step, made = trace.steps[index], made_by(trace.steps[index])
            for slot in made:
                alive[slot] = trace.nbytes[slot]
                live += alive[slot]
            kernel = kernel_bytes(trace, step.signature, step.reads, made)
            peak = max(peak, live + kernel)
            for slot in (*step.reads, *made):
                dead = slot not in wanted and last_read.get(slot, -1) <= index
                if dead and slot in alive:
                    live -= alive.pop(slot)
        return sum(self.cost[index] for index in steps), peak

    def _reverse_peak(
        self, first: int, last: int, before: Slots, tape: dict[int, int]
    ) -> int:
        """Most bytes of tape and cotangents while a unit is reversed."""
        trace, nbytes = self.trace, self.uses.nbytes
        # In the order in which autograd saved them.
        own = [(step, slot) for slot, step in tape.items() if slot not in before]
        after = self._saved_after(last, tape)
        peak = nbytes(slot for _, slot in own)
        left = peak + nbytes(after)
        own += [(last, slot) for slot in after]
        for index in range(last - 1, first - 1, -1):
            while own and own[-1][0] > index + 1:
                left -= trace.nbytes[own.pop()[1]]
            taken = step_cotangents(trace, index) + self._waiting_beside(index)
            peak = max(peak, taken + left)
        return peak

    def _saved_after(self, last: int, tape: dict[int, int]) -> list[int]:
        """Results of the last step of a unit that autograd saves and no step reads.

        They are saved when the next unit has begun, and needed in this one, as the
        workspace of a recurrent layer is.
        """
        step = self.trace.steps[last - 1]
        following = self.trace.steps[last : last + 1]
        read = {slot for each in following for slot in each.reads}
        if step.signature.kind.scratch:
            read.clear()  # it needs all of its results
        results = set(made_by(step)) - read - tape.keys()
        return [slot for slot in results if self.uses.last_use.get(slot, -1) == last]

    def _waiting_beside(self, index: int) -> int:
        """Cotangents that wait while a step is reversed.

        What is read later, too, has one already, and gets a second one.
        """
        trace, step = self.trace, self.trace.steps[index]
        given = zip(step.reads, step.signature.differentiable, strict=True)
        first = {s for s, flag in given if flag and trace.last_read[s] == index}
        return self._waiting[index] - self.uses.nbytes(first & self._inner)


def _inner(trace: Trace) -> set[int]:
    """The slots made by steps that may get a cotangent."""
    steps, roots = trace.steps, trace.roots
    return {
        slot
        for slot, made in enumerate(trace.producer)
        if made >= 0 and not steps[made].signature.passive
        if roots[slot].dtype.is_floating_point or roots[slot].dtype.is_complex
    }


def _waiting(trace: Trace, inner: set[int]) -> list[int]:
    """For each position, the bytes made before it and read at or after it."""
    uses = ((s, trace.producer[s], trace.last_read[s]) for s in inner)
    waiting = ((m + 1, r + 1, trace.nbytes[s]) for s, m, r in uses if r > m)
    return running_sums(waiting, len(trace.steps) + 2)

"""What was found of a recorded run: units with their sizes and costs, to plan with.

A run that was recorded once says everything: which bytes cross which position, what
autograd saved where, what each operator costs. A program that is run again on the same
shapes makes the same slots in the same order, so a plan made of slots and positions
holds for it; `Measured.agrees` finds the program that does not.

A unit is the least that is taped or not. With units of a hundredth of all that autograd
saves, the optimum among them is near the optimum among operators. A cut where few bytes
cross costs little to store, so of the positions that would make two parts of a piece,
neither less than a quarter of it, the narrowest is taken: a network's blocks are found
without being named. Of equally narrow ones it is where least crosses that autograd has
not saved, since a tape and the state beside it have the rest in common: behind each
ReLU of a chain, where in front of it plans ran a third more again.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice, pairwise
from typing import Any, Generic, NamedTuple, Self, TypeVar, overload

from retape.engines.eager._limits import record_in
from retape.engines.eager._record_bytes import analysis_bytes, deep_bytes
from retape.engines.eager.analysis._columns import Columns
from retape.engines.eager.analysis._cotangent_bytes import state_bytes, sum_bytes
from retape.engines.eager.analysis._operator_cost import step_costs
from retape.engines.eager.analysis._unit_sizes import Unit, UnitSizes
from retape.engines.eager.analysis._uses import Slots, Uses
from retape.engines.eager.trace._run import Run
from retape.engines.eager.trace._trace import Trace

T = TypeVar("T", tuple[int, ...], frozenset[int])


class Packed(Sequence[T], Generic[T]):
    """Short tuples or small sets of integers in two arrays, made anew when asked for.

    What is measured of a run stays beside the runs that follow its plan. A set of ten
    slots takes 700 bytes and an entry here 40: what was measured of a Mamba of two
    blocks took 192 kB in budgets from 236 kB on, and takes a fifth of that.

    Args:
        make: `tuple` or `frozenset`, which makes an entry.
        entries: The integers of each.

    Examples:
        >>> reads = Packed(tuple, [(1, 2), (), (3,)])
        >>> reads[0], reads[-1], reads[1:], len(reads)
        ((1, 2), (3,), [(), (3,)], 3)
        >>> Packed(frozenset, [{1, 2}, ()])[0] == {1, 2}
        True
    """

    __slots__ = ("_ends", "_items", "_make")

    def __init__(
        self, make: Callable[[Iterable[int]], T], entries: Iterable[Iterable[int]]
    ) -> None:
        found = [list(each) for each in entries]
        self._make = make
        self._ends = array("i", accumulate(map(len, found), initial=0))
        self._items = array("i", (item for each in found for item in each))

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[k] for k in range(len(self))[index]]
        k = range(len(self))[index]
        return self._make(self._items[self._ends[k] : self._ends[k + 1]])


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
        notes: What notes on all of its values would take in addition; a budget in which
            fewer are held has fewer.
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
        """As `widths_of`, between all cuts.

        They would take more than all the rest, and are asked for between runs.
        """
        return widths_of(list(self.states), self.nbytes)

    def agrees(self, cut: int, run: Run) -> bool:
        """Whether a run that has come to a cut has done the same in the unit before."""
        counts = len(run.trace.producer), len(run.handle_steps)
        if counts != self.counts[cut] or len(run.trace.steps) != self.cuts[cut]:
            return False
        return not cut or self.marks[cut - 1] == mark_between(
            run, self.cuts[cut - 1 : cut + 1], self.counts[cut - 1 : cut + 1]
        )


def widths_of(states: Sequence[Slots], nbytes: Sequence[int]) -> "list[array[int]]":
    """For two states, the bytes of the later one that the earlier has not."""
    return [
        array("q", [
            sum(nbytes[slot] for slot in right - left) if k > s else 0
            for k, right in enumerate(states)
        ])
        for s, left in enumerate(states)
    ]  # fmt: skip


class ForwardEnd(NamedTuple):
    """What a measurement needs of a forward's end, to be made after the backward.

    Attributes:
        alive: Which saved tensors there were.
        outside: Bytes that the program itself held.
        kept: Bytes that the record kept for good.
    """

    alive: bytes
    outside: int
    kept: int

    @classmethod
    def of(cls, run: Run) -> Self:
        """The state of a run that has just been recorded."""
        trace = run.trace
        kept = trace.kept_bytes + state_bytes(trace)
        return cls(bytes(run.alive), outside_bytes(run), kept)


def whole_mark(run: Run) -> int:
    """The same for two runs that did the same."""
    ends = len(run.trace.steps), len(run.trace.producer), len(run.handle_steps)
    return mark_between(run, (0, ends[0]), ((0, 0), ends[1:]))


def outside_bytes(run: Run) -> int:
    """Bytes that are there although nothing of ours holds them: the program does."""
    trace = run.trace
    held, notes = trace.held.storages, trace.notes
    there = [*held.values(), *trace.tail.partial.values()]
    ours = {each._cdata: each.nbytes() for each in there}
    for slot, note in notes.items():
        if note.received:  # they are among the bytes that are kept
            ours.pop(held[slot]._cdata, None)
    return max(0, trace.counter.live - trace.kept_bytes - sum(ours.values()))


def mark_between(
    run: Run, places: Sequence[int], counts: Sequence[tuple[int, int]]
) -> int:
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


def measure(run: Run, most: int, end: ForwardEnd | None = None) -> Measured:
    """Cut a run into units, where few bytes cross.

    Args:
        run: A recorded run whose graph is alive, unless there is an `end`.
        most: About how many units.
        end: The end of its forward, if the graph need not be alive any more.
    """
    end = ForwardEnd.of(run) if end is None else end
    trace, uses, costs = run.trace, Uses(run, end.alive), step_costs(run.trace)
    cuts = cut_run(trace, uses, most)
    states = uses.crossing(cuts)
    counts = [uses.counts(cut) for cut in cuts]
    sizes = UnitSizes(run, uses, costs)
    parts = range(len(cuts) - 1)
    late = uses.late(cuts)
    alone = [
        *(late[k] - uses.tape(cuts[k], cuts[k + 1]).keys() for k in parts),
        late[-1],
    ]
    columns = Columns.of(trace)
    units = [
        unit._replace(lingering=sizes.lingering(cuts[k], alone[k]))
        for k, unit in enumerate(sizes.units(cuts, states))
    ]
    found = Measured(
        tuple(cuts),
        tuple(counts),
        tuple(mark_between(run, cuts[k : k + 2], counts[k : k + 2]) for k in parts),
        Packed(frozenset, states),
        tuple(units),
        Packed(frozenset, late),
        Packed(frozenset, alone),
        Packed(frozenset, [uses.tape(cuts[k], cuts[k + 1]) for k in parts]),
        Packed(tuple, [step.reads for step in trace.steps]),
        array("i", trace.producer),
        array("q", trace.nbytes),
        array("q", (columns.kernel + columns.made_bytes).tobytes()),
        end.kept + _cotangents_kept(run) + end.outside,
        end.outside,
        array("q", costs),
        sum(costs),
    )
    return _with_bookkeeping(run, found)


def _with_bookkeeping(run: Run, found: Measured) -> Measured:
    """What the record takes, and all that was measured, which stays beside it.

    Or, where that takes more, analyses of the record: they have that room at its end.
    How much a budget has notes on nothing here says: with those on all a Mamba had room
    for less than half of what fits in a megabyte, and with those of a run by rules,
    which held less, a chain of tiny operators left each plan at its end.
    """
    record = run.tally.record
    if not run.trace.on_host:  # the budget is the accelerator's
        return found
    taken = max(deep_bytes(found), analysis_bytes(run))
    if record is None:
        return replace(found, bookkeeping=taken)
    saved = Slots().union(*found.tapes)
    return replace(
        found,
        bookkeeping=taken + record.bare,
        notes=record.notes_on(len(saved)),
        saved_bytes=sum(run.trace.nbytes[slot] for slot in saved),
    )


def _cotangents_kept(run: Run) -> int:
    """Sums that wait for the first read of what the program brought along, and more."""
    return sum_bytes(run.trace) + _gradient_bytes(run)


def _gradient_bytes(run: Run) -> int:
    """The largest gradient of a leaf read as a view: it waits for that of the view.

    Those of others are added up at once, before anything else is reversed.
    """
    trace = run.trace
    viewed = {
        slot
        for step in trace.steps
        for slot, seen in zip(step.reads, step.signature.geometries, strict=True)
        if trace.noted(slot).first_read >= 0 and seen is not trace.noted(slot).whole
    }
    return max((trace.nbytes[slot] for slot in viewed), default=0)


def cut_run(
    trace: Trace, uses: Uses, most: int, given: Iterable[int] = ()
) -> list[int]:
    """Positions of about `most` units, divided by the bytes that they save.

    Those that are given are among them.
    """
    length = uses.length
    saved_at = [0] * (length + 2)
    seen: set[int] = set()
    for step, slot in uses.saved:
        if slot not in seen:
            seen.add(slot)
            saved_at[step] += trace.nbytes[slot]
    sums = list(accumulate(saved_at, initial=0))
    size = max(1.0, sums[-1] / most)
    if not length:
        return [0]
    widths, ends = uses.widths(), sorted({0, *given, length})
    inner = (_divided(*each, sums, size, widths) for each in pairwise(ends))
    return sorted({*ends, *chain.from_iterable(inner)})


def _divided(
    begin: int, end: int, sums: Sequence[int], size: float, widths: Sequence[Any]
) -> list[int]:
    """Positions that cut a piece where few bytes cross, so that each part saves `size`.

    Examples:
        >>> _divided(0, 4, [0, 5, 10, 15, 20], 5, [0, 9, 3, 9, 0])
        [1, 2, 3]
    """
    cuts: list[int] = []
    stack = [(begin, end)]
    while stack:
        low, high = stack.pop()
        total = sums[high] - sums[low]
        if total < 2 * size:
            continue
        inner = [
            k
            for k in range(low + 1, high)
            if total <= 4 * (sums[k] - sums[low]) <= 3 * total
        ]
        if inner:
            best = min(inner, key=lambda k: widths[k])
            cuts.append(best)
            stack += [(low, best), (best, high)]
    return sorted(cuts)

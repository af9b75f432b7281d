"""Units of a recorded run, with their sizes and costs, for the dynamic programme.

A run that was recorded once says everything: which bytes cross which position, what
autograd saved where, what each operator costs.

A unit is the least that is taped or not. With units of a hundredth of all that autograd
saves, the optimum among them is near the optimum among operators. A cut where few bytes
cross costs little to store, so of the positions that would make two parts of a piece,
neither less than a quarter of it, the narrowest is taken: a network's blocks are found
without being named. Of equally narrow ones it is where least crosses that autograd has
not saved, since a tape and the state beside it have the rest in common: behind each
ReLU of a chain, where in front of it plans ran a third more again.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from typing import Any

from retape.engines.eager._record_bytes import analysis_bytes, deep_bytes
from retape.engines.eager.analysis._columns import Columns
from retape.engines.eager.analysis._measured import (
    ForwardEnd,
    Measured,
    Packed,
    mark_between,
)
from retape.engines.eager.analysis._operator_cost import step_costs
from retape.engines.eager.analysis._unit_sizes import UnitSizes
from retape.engines.eager.analysis._uses import Slots, Uses
from retape.engines.eager.trace._run import Run
from retape.engines.eager.trace._trace import Trace


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
        if slot in trace.gradients and seen is not trace.gradients[slot].whole
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

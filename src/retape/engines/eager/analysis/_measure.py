"""Units of a recorded run, with their sizes and costs, for the dynamic programme.

A run that was recorded once says everything: which bytes cross which position, what
autograd saved where, what each operator costs.
"""

from array import array
from dataclasses import replace

from retape.engines.eager._record_bytes import analysis_bytes, deep_bytes
from retape.engines.eager.analysis._columns import Columns
from retape.engines.eager.analysis._lifetimes import OwnPeaks
from retape.engines.eager.analysis._measured import (
    ForwardEnd,
    Measured,
    Packed,
    mark_between,
)
from retape.engines.eager.analysis._operator_cost import step_costs
from retape.engines.eager.analysis._partition import cut_run
from retape.engines.eager.analysis._unit_sizes import UnitSizes
from retape.engines.eager.analysis._uses import Slots, Uses
from retape.engines.eager.trace._run import Run


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
    units = [sizes.unit(cuts[k], cuts[k + 1], states[k], states[k + 1]) for k in parts]
    late = uses.late(cuts)
    alone = [
        *(late[k] - uses.tape(cuts[k], cuts[k + 1]).keys() for k in parts),
        late[-1],
    ]
    own = OwnPeaks(uses, Columns.of(trace), end.there)
    units = [
        unit._replace(
            lingering=sizes.lingering(cuts[k], alone[k]),
            own_peak=own.of(cuts[k], cuts[k + 1], states[k], taped=True),
            own_advance_peak=own.of(cuts[k], cuts[k + 1], states[k], taped=False),
        )
        for k, unit in enumerate(units)
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
        array("q", own.needs.tobytes()),
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

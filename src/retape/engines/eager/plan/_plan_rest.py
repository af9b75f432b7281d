"""The backward of a run that rules have led: the schedule of least cost for the rest.

When the backward comes to a gap that cannot be run again at once, the record is whole,
and a plan is made of it as for a later run. Only the program's own run is over: it has
left snapshots, and which of them stay is the dynamic programme's choice, too.
"""

from itertools import pairwise
from math import isqrt

from retape.engines.eager._limits import SMALL_BUDGET
from retape.engines.eager._record_bytes import analysis_bytes
from retape.engines.eager.analysis._measure import cut_run
from retape.engines.eager.analysis._measured import widths_of
from retape.engines.eager.analysis._operator_cost import step_costs
from retape.engines.eager.analysis._unit_sizes import UnitSizes
from retape.engines.eager.analysis._uses import Slots, Uses
from retape.engines.eager.plan._book import UNITS
from retape.engines.eager.plan._dynamic_programme import Optimum
from retape.engines.eager.plan._program import FEWEST_ENTRIES
from retape.engines.eager.plan._way_back import UnitSchedule
from retape.engines.eager.trace._run import Run
from retape.engines.eager.trace._schedule import Descent

# The table has 64 levels of four bytes for half of all pairs of units, at least.
_PAIR_BYTES = 128


def plan_rest(run: Run, position: int, memory: int) -> UnitSchedule | None:
    """Descents for all that is saved up to a position; `None` if there is no room.

    Args:
        run: A recorded run, whose backward has come to the position.
        position: The step at which the value was saved that is asked for.
        memory: The budget.
    """
    trace = run.trace
    length = len(trace.steps)
    end = min(position + 1, length)
    high = run.beyond(run.saved_between(0, position)).stop
    uses = Uses(run, bytes(run.alive[:high]) + bytes(len(run.alive) - high))
    snapshots = [each.position for each in trace.snapshots]
    free = int(trace.memory - trace.counter.live)
    table = _room_for_table(run, memory, free)
    most = min(UNITS, isqrt(table // _PAIR_BYTES))
    if most <= len(snapshots):
        return None
    cuts = [c for c in cut_run(trace, uses, most, [*snapshots, end]) if c <= end]
    states, sizes = uses.crossing(cuts), UnitSizes(run, uses, step_costs(trace))
    units = [
        sizes.unit(*places, *around)
        for places, around in zip(pairwise(cuts), pairwise(states), strict=True)
    ]
    ours = set[int]().union(*(each.slots for each in trace.snapshots))
    room = free + uses.nbytes(ours - trace.tail.steps.keys())
    best = Optimum(
        units,
        widths_of(states, trace.nbytes),
        max(0, room),
        FEWEST_ENTRIES,
        table=table,
        held=[cuts.index(each) for each in snapshots],
    )
    if best.cost == float("inf"):
        return None
    own, *descents = best.descents()
    if end == length:
        cuts.pop()
    else:  # the last unit is what was kept, and is reversed
        own = Descent(0, len(cuts), own.stores, (len(units),), -1)
        states.append(Slots())
    return UnitSchedule([own, *descents], cuts, states)


def _room_for_table(run: Run, memory: int, free: int) -> int:
    """The bytes of the host that are left for the plan's table.

    Nothing is run again yet, so it may take what that will, and what is left of the
    megabyte that tensors and the record may take in any budget.
    """
    if not run.trace.on_host:
        return SMALL_BUDGET
    record = run.tally.record
    taken = memory + (0 if record is None else record.bare)
    return max(0, free) + analysis_bytes(run) + max(0, SMALL_BUDGET - taken)

"""The plan that a run is expected to follow, and what becomes of it on the way.

Where the program holds more than there is room for, the run lets tapes and states go,
and the plan says from where they are run again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from retape.engines.eager.analysis._measured import Measured
from retape.engines.eager.keep._place_snapshot import put_away
from retape.engines.eager.plan._way_back import UnitSchedule
from retape.engines.eager.trace._report import Descent, Schedule
from retape.engines.eager.trace._trace import Trace

_MEASURED = (
    "This is the schedule of least cost for what an earlier run, or an estimate, has "
    "shown of the program."
)


@dataclass(slots=True)
class ExpectedPlan(UnitSchedule):
    """The plan of a program that a run is expected to be.

    Attributes:
        measured: The run that it was made from.
        outside: Bytes that the program itself may hold at its end.
        others: What the program may follow if its first unit is not this plan's.
        made: The descents as they were found; a run may have had to add some.
    """

    measured: Measured = field(kw_only=True)
    outside: int = field(kw_only=True)
    others: "list[ExpectedPlan]" = field(default_factory=list["ExpectedPlan"])
    made: Sequence[Descent] = field(init=False)

    def __post_init__(self) -> None:
        self.made = self.descents

    def put_away(self, trace: Trace) -> None:
        """Move snapshots into the store, and the tapes that are to go there."""
        elsewhere = trace.held.elsewhere
        if elsewhere is None:
            return
        # What autograd has saved, too, is read from there: the plan has counted on it.
        put_away(trace, trace.snapshots, with_tail=True)
        for unit in self.descents[0].away:
            if unit < len(self.cuts):
                tape = self.measured.tapes[unit]
                elsewhere.put_away(slot for slot in tape if slot in trace.tail.steps)

    def turn(self, position: int) -> bool:
        """Become another plan whose first unit ends at a position or after it."""
        for other in self.others:
            if other.measured.cuts[1] >= position:
                self.others.remove(other)
                self.descents = self.made = other.descents
                self.measured, self.outside = other.measured, other.outside
                return True
        return False

    def run_again(self, unit: int) -> None:
        """The program's own run lets the tape of a unit go: it is run for it later.

        Units that are let go after the same state are run again together: when the
        backward comes to the last of them, the plan has room for them all.
        """
        own, *others = self.descents
        start = max((each for each in own.stores if each <= unit), default=0)
        count = len(self.made) - 1
        made, added = others[:count], others[count:]
        taped = {unit}.union(*(each.taped for each in added if each.start == start))
        again = Descent(start, max(taped) + 1, (), tuple(sorted(taped)), 0)
        left = tuple(each for each in own.taped if each != unit)
        added = [*(each for each in added if each.start != start), again]
        self.descents = [replace(own, taped=left), *made, *added]

    def run_from(self, start: int, unit: int) -> None:
        """The state before a unit is let go: what ran from it runs from an earlier one.

        The first that does, which is the longest, stores it if more run from it.
        """
        own, *others = self.descents
        stores = tuple(each for each in own.stores if each != unit)
        found = self.descents = [replace(own, stores=stores), *others]
        from_it = [k for k, each in enumerate(found) if k and each.start == unit]
        ours = [k for k in from_it if not found[k].parent]
        first = max(ours, key=lambda k: found[k].stop, default=0)
        for k in ours:
            found[k] = replace(found[k], parent=first)
        if first:
            stores = found[first].stores
            if len(from_it) > 1:
                stores = (unit, *stores)
            found[first] = replace(found[first], start=start, stores=stores, parent=0)

    def as_written(self, in_store: bool) -> Schedule:
        """The plan as it reads, of a run whose snapshots are in a store or not."""
        nbytes = self.measured.nbytes
        saved = [sum(nbytes[slot] for slot in tape) for tape in self.measured.tapes]
        own = self.descents[0]
        # What a stored state has of a tape is put away with it.
        away = (*own.stores, *own.away) if in_store else ()
        why = _MEASURED
        if self.descents is not self.made:
            why += f" The program held {self.excess} bytes more, so less is kept."
        return Schedule(self.descents, self.measured.cuts, saved, why, away)

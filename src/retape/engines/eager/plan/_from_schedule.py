"""A chain of functions by a stream of schedule actions.

Actions tell a driver what to do one after the other. The backward of PyTorch asks for
values instead, so the stream is cut at its `Reverse` actions: what lies between two of
them is one descent, the run from a stored state to the stage that is then reversed. A
`Tape` on the way is part of what the descent tapes; its `Sweep` needs no run.

Nothing is known of the functions before they run, and nothing has to be: what the first
descent says of each is done where it begins and ends.
"""

from collections.abc import Iterable, Sequence

from retape._errors import PlanError
from retape.engines.eager.analysis._uses import Uses
from retape.engines.eager.keep._place_snapshot import (
    PartBegin,
    put_away,
    snapshot_here,
)
from retape.engines.eager.plan._way_back import UnitSchedule
from retape.engines.eager.trace._report import Descent
from retape.engines.eager.trace._run import Run
from retape.schedule import Advance, Drop, Restore, Reverse, Store, Sweep, Tape
from retape.schedule._action import Action


def descents_of(actions: Iterable[Action], length: int) -> list[Descent]:
    """The descents of a schedule for `length` functions.

    Raises:
        PlanError: If the actions do not reverse so many functions.

    Examples:
        >>> from retape.schedule import Schedule
        >>> for each in descents_of(Schedule(4, 2), 4):
        ...     print(each.start, each.stores, each.taped)
        0 (1,) (3,)
        1 () (2,)
        1 () (1,)
        0 () (0,)
    """
    found: list[Descent] = []
    made_by = {0: 0}
    left, start, at = length, 0, 0
    held: set[tuple[int, int]] = set()
    stores: list[int] = []
    tiers: list[str] = []
    taped: list[int] = []
    for action in actions:
        match action:
            case Store(step, _, tier):
                stores += [step] if step != start else []
                tiers += [tier] if step != start else []
            case Advance(_, stop):
                at = stop
            case Restore(step):
                start = at = step
            case Reverse(first, stop):
                if stop != left or first != at or first < start:
                    raise _wrong(length, f"reverses `{first}` to `{stop}` at `{left}`")
                parent = made_by[start] if found else -1
                for step in stores:
                    made_by[step] = len(found)
                taped += range(first, stop)
                places = tuple(tiers) if set(tiers) - {"memory"} else ()
                found.append(
                    Descent(start, stop, tuple(stores), tuple(taped), parent, places)
                )
                stores, tiers, taped, left = [], [], [], first
            case Tape(first, stop):
                if first != at or stop >= left:
                    raise _wrong(length, f"tapes `{first}` to `{stop}` at `{at}`")
                taped += range(first, stop)
                held |= {(first, stop)}
                at = stop
            case Sweep(first, stop):
                if stop != left or (first, stop) not in held:
                    raise _wrong(length, f"sweeps `{first}` to `{stop}` at `{left}`")
                left = first
            case Drop():
                pass
    if left:
        raise _wrong(length, f"leaves the first `{left}` unreversed")
    return found


def _wrong(length: int, what: str) -> PlanError:
    return PlanError(
        f"`plan` is not a schedule of `{length}` functions: it {what}. Make it for "
        "the number of functions, the first of them step 0."
    )


class PlannedFunctions:
    """The run of a chain of functions, of which each is a unit of the plan.

    Args:
        run: The run, which is being recorded.
        descents: The plan.
    """

    def __init__(self, run: Run, descents: Sequence[Descent]) -> None:
        self._run, self._plan = run, UnitSchedule(descents)
        self._begin: PartBegin | None = None

    def come_to(self, unit: int) -> None:
        """The function before has returned, and another one is about to be called."""
        run, own = self._run, self._plan.descents[0]
        self.leave_unit()
        self._plan.cuts.append(len(run.trace.steps))
        if unit in own.stores:
            snapshot_here(run, own.tier_of(unit))
            put_away(run.trace, run.trace.snapshots[:-1])  # they are complete now
        self._begin = None if unit in own.taped else PartBegin.here(run.trace)

    def leave_unit(self) -> None:
        """Let go of what the latest function has saved, unless it is taped."""
        if self._begin is not None:
            self._begin.let_go(self._run.trace)

    def plan(self) -> UnitSchedule:
        """The plan for the backward of the run, which has ended."""
        ends = [*self._plan.cuts, len(self._run.trace.steps)]
        self._plan.states = Uses(self._run).crossing(ends)
        return self._plan

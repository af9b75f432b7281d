"""A plan over the units of a run, and the way back through its descents.

The first descent is the program's own run: the values that autograd saves are held in
the units that it tapes and let go in the others, and the state before each stored unit
is held. When the backward comes to a unit that is not taped, the descent that tapes it
is run from the state that it starts at. If the run leaves the plan, or holds more than
there is room for, the rest is done without one: every value can still be recomputed.

A backward and its rehearsal ask the same of a plan, one with tensors in its hands and
one with their numbers. So they cannot come to different answers.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from sys import maxsize

from retape.engines.eager.analysis._uses import Slots
from retape.engines.eager.keep._place_snapshot import put_away
from retape.engines.eager.trace._schedule import Descent
from retape.engines.eager.trace._trace import Trace


@dataclass(slots=True)
class UnitSchedule:
    """Descents over the units of one run.

    Attributes:
        descents: The program's own run first.
        cuts: Positions of the units as far as they are known.
        states: At each cut, the slots made before and used after.
        broken: The run has left the plan.
    """

    descents: Sequence[Descent]
    cuts: list[int] = field(default_factory=list[int])
    states: Sequence[Slots] = ()
    broken: bool = False

    def leave(self, excess: int = 0, overhang: int = 0) -> None:
        """The rest is done without this plan.

        Args:
            excess: Bytes that the run holds beyond what there is room for.
            overhang: Bytes that the program holds itself, if that was while it ran.
        """
        del excess, overhang
        self.broken = True

    def put_away(self, trace: Trace) -> None:
        """Move what snapshots hold into the store, if there is one."""
        put_away(trace, trace.snapshots)

    def unit_at(self, position: int) -> int:
        """The unit that a position lies in."""
        return bisect_right(self.cuts, position) - 1

    def stop_of(self, unit: int) -> int:
        """The step behind a unit; what is saved at the end of a run is the last's."""
        return self.cuts[unit + 1] if unit + 1 < len(self.cuts) else maxsize


def owner_of(descents: Sequence[Descent], unit: int) -> int:
    """The number of the descent that tapes a unit."""
    return next(k for k, each in enumerate(descents) if unit in each.taped)


def path_to(
    descents: Sequence[Descent], unit: int, is_stored: Callable[[int], bool]
) -> list[Descent]:
    """The descents that have to run for the tape of a unit, the first one first.

    Args:
        descents: The plan.
        unit: The unit.
        is_stored: Tells whether the state before a unit is held.

    Examples:
        The state before unit 2 has been stored by a descent from the start.

        >>> own = Descent(0, 4, (), (3,), -1)
        >>> plan = [own, Descent(0, 3, (1,), (2,), 0), Descent(1, 2, (), (1,), 1)]
        >>> [each.start for each in path_to(plan, 1, lambda unit: unit in (0, 1))]
        [1]
        >>> [each.start for each in path_to(plan, 1, lambda unit: unit == 0)]
        [0, 1]
    """
    path = [descents[owner_of(descents, unit)]]
    while not is_stored(path[0].start):
        path.insert(0, descents[path[0].parent])
    return path


def tapes_in(
    descents: Sequence[Descent],
    start: int,
    unit: int,
    state: Collection[int],
    tape: Callable[[int], Iterable[int]],
) -> list[int] | None:
    """The units before another that a state has the tapes of, if it is for no more.

    Args:
        descents: The plan.
        start: The unit that the state is before.
        unit: The unit that the backward has reversed.
        state: The slots of the state.
        tape: The slots of a unit's tape.

    Returns:
        `None` if a descent has to run from the state for those that are left.
    """
    left = [each for each in descents[1:] if each.start == start and each.stop <= unit]
    units = [each for descent in left for each in descent.taped]
    there = set[int]().union(*map(tape, units)).issubset(state)
    return units if there and not any(each.stores for each in left) else None

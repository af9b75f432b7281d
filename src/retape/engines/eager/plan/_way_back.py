"""The way back through the descents of a plan: what runs before what, and from where.

A backward and its rehearsal ask the same of a plan, one with tensors in its hands and
one with their numbers. So they cannot come to different answers.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from retape.engines.eager.trace._schedule import Descent


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

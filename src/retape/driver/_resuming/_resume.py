"""Taking a run up again that another process left, by its record and its files.

A program is deterministic, so the state before a step is the same in every run, and so
is the stream of actions of a plan. All that has to be found is the place in the stream
from which to go on: after the `Reverse` that the record names, or further on, after the
last `Store` before the next `Reverse` whose file is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from retape._errors import MachineError, SnapshotError
from retape.driver._resuming._proof import confirmed
from retape.schedule import Advance, Drop, Reverse, Store, Sweep, Tape
from retape.schedule._action import Action
from retape.storage import Place, Record, SnapshotStore

if TYPE_CHECKING:
    from retape.driver._loop import Run

C = TypeVar("C")
A = TypeVar("A")
R = TypeVar("R")


def skip_done(
    run: Run[C, A, R],
    actions: Iterable[Action],
    record: Record | None,
    store: SnapshotStore[C],
) -> Iterator[Action]:
    """The actions that are still to be done; `run` is set to go on from there."""
    rest = iter(actions)
    if run.proof is not None and not store.is_lossy:
        run.proof.old = store.steps()
    if record is not None and record.left is not None and record.cotangent is not None:
        cotangent: Any = record.cotangent
        if run.proof is not None:
            cotangent = run.proof.take_up(record)
        _skip_reversed(run, rest, record.left)
        run.went_on(record.left, cotangent)
    ahead = list(_until_reverse(rest))
    ahead = _skip_stored(run, ahead, store)
    store.keep_only(*kept_steps(run))
    return chain(ahead, rest)


def kept_steps(run: Run[C, A, R]) -> tuple[set[int], set[int]]:
    """The steps at which the states and the tapes begin that a schedule holds."""
    held = run.slots.values()
    tapes = {place.step for place in held if place.tape}
    return {place.step for place in held if not place.tape}, tapes


def _skip_reversed(run: Run[C, A, R], rest: Iterator[Action], left: int) -> None:
    for action in rest:
        _note(run, action)
        if isinstance(action, Reverse | Sweep) and action.start == left:
            run.working = None
            return
    raise MachineError(
        f"the record says that {left} steps are left, and no stage of this plan ends "
        "there. Use the plan that the run was begun with, or another directory."
    )


def _until_reverse(rest: Iterator[Action]) -> Iterator[Action]:
    for action in rest:
        yield action
        if isinstance(action, Reverse | Sweep):
            return


def _skip_stored(
    run: Run[C, A, R], ahead: list[Action], store: SnapshotStore[C]
) -> list[Action]:
    """Go on after the last `Store` in `ahead` whose snapshot can be read.

    Or within an `Advance`, where a run that was interrupted has left its state. Not
    from a snapshot that is no more than near its state: the result would be another.
    """
    if store.is_lossy:
        return ahead
    there = store.steps()
    for i in range(len(ahead) - 1, -1, -1):
        for step in _steps_at(ahead[i], there):
            try:
                capsule = store.get(Place(step, -1, "disk"))
            except SnapshotError:
                continue
            for done in ahead[:i]:
                _note(run, done)
            rest = _from(run, ahead[i], step)
            run.at = step
            run.went_on()
            run.working = confirmed(run, step, capsule)
            return [*rest, *ahead[i + 1 :]]
    return ahead


def _steps_at(action: Action, there: set[int]) -> list[int]:
    """The steps that an action leads to and whose snapshots are there, last first."""
    if isinstance(action, Store):
        return [action.step] if action.step in there else []
    if isinstance(action, Advance):
        return sorted(k for k in there if action.start < k <= action.stop)[::-1]
    return []


def _from(run: Run[C, A, R], action: Action, step: int) -> list[Action]:
    """The remainder of an action at a step; its finished part is noted."""
    if isinstance(action, Advance):
        _note(run, Advance(action.start, step))
        return [Advance(step, action.stop)] if step < action.stop else []
    _note(run, action)
    return []


def _note(run: Run[C, A, R], action: Action) -> None:
    """Follow what an action that is skipped does to the slots, and its work."""
    match action:
        case Store(step, slot, tier):
            run.slots[tier, slot] = Place(step, slot, tier)
            run.tiers.holds(tier)
        case Drop(_, slot, tier):
            del run.slots[tier, slot]
            run.tiers.freed(tier)
            run.tapes.pop((tier, slot), None)
        case Tape(start, stop, slot, tier):
            run.slots[tier, slot] = Place(start, slot, tier, tape=True)
            run.tapes[tier, slot] = stop
            run.tiers.holds(tier)
            run.skipped += stop - start
        case Advance(start, stop) | Reverse(start, stop):
            run.skipped += stop - start
        case _:
            return

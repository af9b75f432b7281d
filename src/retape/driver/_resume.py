"""A run that goes on: from where, with what is lost made again, by the same program.

**Where?** A program is deterministic, so the state before a step is the same in every
run, and so is the stream of actions of a plan. All that has to be found is the place in
the stream from which to go on: after the `Reverse` that the record names, or further
on, after the last `Store` before the next `Reverse` whose file is there.

**What is lost?** The state before a step follows from any earlier state, and the tape
of a stage from the state before it. All that was lost on the way is put back as it is
passed: where a process died with hundreds of snapshots in memory, one pass restores
them.

**Is it the program that began the run?** Neither its code nor what it reads can be
compared for certain: a constant, a module of settings, a file, a library, a compiler
may have changed. What it does can. With each snapshot goes a digest of the state one
step later, and a record has what the adjoint of the last step was given, with a digest
of what it gave:

    snapshot of step 40     the state before step 40, and a digest of that before 41
    record with 20 left     the state before step 20 and the cotangent after it, and a
                            digest of that before it

So a process that takes the run up runs a step from each old snapshot that it restores,
reverses one step again, and goes on only if the bits agree. The step from a snapshot is
one that the schedule runs next anyway, so it is mostly run no more often.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from operator import index
from time import perf_counter
from typing import TYPE_CHECKING, Any

from retape._errors import MachineError, SnapshotError, StoreError
from retape.schedule import Advance, Drop, Reverse, Store, Sweep, Tape
from retape.schedule._action import Action
from retape.storage import Place, Record, SnapshotStore

if TYPE_CHECKING:
    from retape.driver._loop import Run


# Where -------------------------------------------------------------------------------


def skip_done(
    run: Run,
    actions: Iterable[Action],
    record: Record | None,
    store: SnapshotStore[Any],
) -> Iterator[Action]:
    """The actions that are still to be done; `run` is set to go on from there."""
    rest = iter(actions)
    if run.proof is not None and not store.is_lossy:
        run.proof.old = store.steps()
    if record is not None and record.left is not None and record.cotangent is not None:
        cotangent = record.cotangent
        if run.proof is not None:
            cotangent = _taken_up(run, run.proof, record)
        _skip_reversed(run, rest, record.left)
        run.went_on(record.left, cotangent)
    ahead = list(_until_reverse(rest))
    ahead = _skip_stored(run, ahead, store)
    store.keep_only(*kept_steps(run))
    return chain(ahead, rest)


def kept_steps(run: Run) -> tuple[set[int], set[int]]:
    """The steps at which the states and the tapes begin that a schedule holds."""
    held = run.slots.values()
    tapes = {place.step for place in held if place.tape}
    return {place.step for place in held if not place.tape}, tapes


def _skip_reversed(run: Run, rest: Iterator[Action], left: int) -> None:
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
    run: Run, ahead: list[Action], store: SnapshotStore[Any]
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
            capsule = written(store, step)
            if capsule is None:
                continue
            for done in ahead[:i]:
                _note(run, done)
            rest = _from(run, ahead[i], step)
            stand_at(run, step, capsule)
            return [*rest, *ahead[i + 1 :]]
    return ahead


def written(store: SnapshotStore[Any], step: int) -> Any:
    """The state before a step as an earlier process has left it, if it can be read."""
    with suppress(SnapshotError):
        return store.get(Place(step, -1, "disk"))
    return None


def stand_at(run: Run, step: int, capsule: Any) -> None:
    """Let a run go on from a state that an earlier process has left."""
    run.at = step
    run.went_on()
    run.working = confirmed(run, step, capsule)


def _steps_at(action: Action, there: set[int]) -> list[int]:
    """The steps that an action leads to and whose snapshots are there, last first."""
    if isinstance(action, Store):
        return [action.step] if action.step in there else []
    if isinstance(action, Advance):
        return sorted(k for k in there if action.start < k <= action.stop)[::-1]
    return []


def _from(run: Run, action: Action, step: int) -> list[Action]:
    """The remainder of an action at a step; its finished part is noted."""
    if isinstance(action, Advance):
        _note(run, Advance(action.start, step))
        return [Advance(step, action.stop)] if step < action.stop else []
    _note(run, action)
    return []


def _note(run: Run, action: Action) -> None:
    """Follow what an action that is skipped does to the slots, and its work."""
    match action:
        case Store(step, slot, tier):
            run.holds(Place(step, slot, tier))
            run.tiers.holds(tier)
        case Drop(_, slot, tier):
            run.free(run.slots[tier, slot])
        case Tape(start, stop, slot, tier):
            run.holds(Place(start, slot, tier, tape=True), stop)
            run.tiers.holds(tier)
            run.skipped += stop - start
        case Advance(start, stop) | Reverse(start, stop):
            run.skipped += stop - start
        case _:
            return


# What is lost ----------------------------------------------------------------------


def fetch(run: Run, place: Place) -> Any:
    """The capsule or the tape in a slot; recomputed if it is lost."""
    began = perf_counter()
    try:
        return _get(run, place)
    except SnapshotError:
        run.report.repaired += 1
    finally:
        run.spend("storage", began)
    at, capsule, lost = _earlier(run, place.step)
    capsule = run.copied(capsule)
    run.report.repaired += len(lost)
    if run.total is not None:
        run.total += run.tapes.get(place.where, place.step) - at
    run.tell()
    made = capsule
    for each in [*reversed(lost), place]:
        if at < each.step:
            capsule, at = run.advance(capsule, at, each.step)
        run.store.drop(each)
        run.tiers.freed(each.tier)
        if each.tape:
            stop = run.tapes[each.where]
            made, capsule = run.tape(capsule, each.step, stop)
            run.put(each, made, stop)
            at = stop
        else:
            made = capsule = run.keep(each, capsule)
    return made


def _earlier(run: Run, step: int) -> tuple[int, Any, list[Place]]:
    """The latest readable state before `step`, and what is lost in between."""
    lost: list[Place] = []
    for place in sorted(run.slots.values(), reverse=True):
        if place.step >= step:
            continue
        try:
            value = _get(run, place)
        except SnapshotError:
            lost.append(place)
        else:
            if not place.tape:
                return place.step, value, lost
    return 0, run.machine.start(), lost


def _get(run: Run, place: Place) -> Any:
    found = run.store.get(place)
    return found if place.tape else confirmed(run, place.step, found)


# The same program ------------------------------------------------------------------


class AnotherProgram(StoreError):
    """A store holds the run of a program that does something else."""


@dataclass(slots=True)
class Proof:
    """What a run has to compare with what it was before.

    Attributes:
        old: Steps of snapshots that an earlier process has written, and that have not
            been compared.
        done: Whether the run was done: another program may follow it.
    """

    old: set[int] = field(default_factory=set[int])
    done: bool = False


def _taken_up(run: Run, proof: Proof, record: Record) -> Any:
    """The cotangent that a record leads to.

    Raises:
        StoreError: If the sweep back would begin or go on with another one.
    """
    proof.done = record.left == 0
    found = run.machine.taken_up(record.cotangent, record.length)
    what = f"the adjoint of step {record.left}, or of the last state, gives another"
    _settle(run, found is not None, f"{what} cotangent")
    return found


def _settle(run: Run, alike: bool, what: str) -> None:
    if not run.store.agree(alike):
        raise AnotherProgram(
            f"`store={run.store!r}` holds a run that another program has begun: "
            f"{what} than it gave there. Undo what has changed since (a constant, "
            "a module, a file, a library), or call `clear()` on the store, and the "
            "run begins anew. A program that gives other bits each time cannot "
            "go on."
        )


def signed(run: Run, step: int, capsule: Any) -> Any:
    """A capsule for the store, which tells what the step from it does."""
    # What a codec with a loss gives back has other bits than what it was given.
    if run.proof is None or run.store.is_lossy:
        return capsule
    run.proof.old.discard(step)
    return run.machine.sign(*_step_ahead(run, step, capsule))


def confirmed(run: Run, step: int, capsule: Any) -> Any:
    """A capsule of the store's; one of an earlier process is compared.

    Raises:
        StoreError: If the step from it gives another state than it gave.
    """
    if run.proof is None or step not in run.proof.old:
        return capsule
    kept, after = _step_ahead(run, step, capsule)
    run.proof.old.discard(step)
    _settle(run, run.machine.agrees(kept, after), f"step {step} gives another state")
    return kept


def _step_ahead(run: Run, step: int, capsule: Any) -> tuple[Any, Any]:
    """The capsule in memory that the step does not touch, and the one after it.

    That is kept for the next advance.
    """
    began = perf_counter()
    kept, run.ahead = run.copied(capsule), None
    if run.working is capsule:
        run.working, run.borrowed = kept, None
    after, made = run.machine.advance(capsule, 1)
    if run.verifier:
        run.verifier.check(step, step + 1, after)
    if index(made):
        run.ahead = step, after
        run.report.checked += 1
    run.spend(run.phase, began)
    return kept, after

"""The actions of a run whose length only its end tells.

The stages on the way there are advanced one after the other. Whether the start of one
is kept is decided when the next one has begun, so that the last stage, of which the way
back begins, is never stored:

    stage       0       1       2
            |-------|-------|-------> the working capsule
                    ^ `behind`: kept, if the run goes on here
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from retape._errors import SnapshotError
from retape.driver._foresight import foretold
from retape.driver._resuming._proof import confirmed
from retape.driver._resuming._repair import fetch
from retape.schedule import Advance
from retape.schedule._action import Action
from retape.schedule._placing._online import Online, Placement
from retape.storage import Place, SnapshotStore

if TYPE_CHECKING:
    from retape.driver._loop import Run

C = TypeVar("C")
A = TypeVar("A")
R = TypeVar("R")


def to_the_end(run: Run[C, A, R], online: Online) -> Iterator[Action]:
    """The actions to the end of a run, and those back from there.

    What comes next depends on how far the run came: so each action is obeyed before the
    next one is asked for.
    """
    state, alpha = online.begin(), online.stage
    if run.durable is not None:
        state = _find_place(run, state, alpha, run.durable)
    while True:
        start, stop = run.at, run.at + alpha
        # The run goes on in memory that may be the program's.
        here = run.copied(run.look(start))
        signs = run.proof is not None and _is_stored(run, state, start // alpha, alpha)
        first = start + 1 if signs else stop
        yield Advance(start, first)
        if run.proof is not None and signs and run.at == first:
            here = run.proof.machine.sign(here, run.look(first))
            if first < stop:
                yield Advance(first, stop)
        goes_on = run.at > start or run.behind is None
        if run.behind is not None and goes_on:
            state = _place(run, state, *run.behind, alpha)
        if goes_on:
            run.behind = start, here
        del here  # The run alone keeps alive what it goes on from.
        if run.at < stop:
            break
    run.length = length = run.at
    assert run.behind is not None  # The first stage is never passed over.
    (run.at, run.working), run.behind = run.behind, None
    run.record()
    more = online.turn_advances(state, length)
    if more is not None:
        run.total = run.report.advances + run.skipped + more + length
    yield from foretold(online.reverse(state, length), run.store)


def _is_stored(run: Run[C, A, R], state: Placement, stage: int, alpha: int) -> bool:
    """Whether the start of a stage will be stored, if the run goes on after it."""
    if run.behind is not None:
        before = run.behind[0] // alpha
        state = state if _has(state, before) else state.place(before)[0]
    return not _has(state, stage) and state.place(stage)[1].slot is not None


def _has(state: Placement, stage: int) -> bool:
    """Whether this is a stage that an earlier process has stored already."""
    return bool(state.positions) and stage <= state.positions[-1]


def _place(
    run: Run[C, A, R], state: Placement, step: int, capsule: C, alpha: int
) -> Placement:
    """Ask the controller about a stage, and do what it says.

    Args:
        run: The run, which has gone on from there.
        state: The controller, asked about the stages before.
        step: The first step of the stage.
        capsule: The one before it, in memory of its own.
        alpha: The stage length.
    """
    if _has(state, step // alpha):
        return state
    state, placed = state.place(step // alpha)
    if placed.moved:
        # Where one was lost it is made anew, in the program's memory.
        run.working = run.copied(run.look(run.at))
    for at, near, far in placed.moved:
        to = Place(at * alpha, far[1], far[0])
        _move(run, Place(at * alpha, near[1], near[0]), to)
    for at, slot in placed.dropped:
        run.drop(Place(at * alpha, slot, placed.tier))
    if placed.slot is not None:
        run.put(Place(step, placed.slot, placed.tier), capsule)
    return state


def _move(run: Run[C, A, R], near: Place, far: Place) -> None:
    """Put what is in one slot into another, on another tier."""
    # One that was lost with an earlier process is made again.
    capsule = fetch(run, near)
    began = perf_counter()
    # First out, then in: a store of one kind knows a snapshot by its step.
    run.store.drop(near)
    del run.slots[near.where]
    run.store.put(far, capsule, run.machine.nbytes(capsule))
    run.slots[far.where] = far
    run.tiers.freed(near.tier)
    run.tiers.read(near.tier)
    run.tiers.wrote(far.tier)
    run.spend("storage", began)


def _find_place(
    run: Run[C, A, R], state: Placement, alpha: int, store: SnapshotStore[C]
) -> Placement:
    """Go on from the last snapshot of an earlier process's way to the end.

    A run that was interrupted has left one more, where it was: the controller has not
    been asked about that stage yet.
    """
    # From a state that is no more than near the run would come to another end.
    there = set[int]() if store.is_lossy else store.steps()
    for step in sorted(there, reverse=True):
        if step % alpha:
            continue
        try:
            capsule = store.get(Place(step, 0, "disk"))
        except SnapshotError:
            continue
        reached = state
        stage, stop = 0, step // alpha
        while (stage := reached.next_change(stage, stop)) < stop:
            reached, _ = reached.place(stage)
            stage += 1
        asked, _ = reached.place(step // alpha)
        if step // alpha in asked.positions:
            reached = asked
        held = zip(reached.positions, reached.slots, reached.tiers, strict=False)
        places = [Place(at * alpha, slot, tier) for at, slot, tier in held]
        run.slots = {place.where: place for place in places}
        run.tiers.took_up(reached.tiers)
        store.keep_only({place.step for place in places})
        run.at = run.skipped = step
        run.went_on()
        if run.proof is not None:
            run.proof.old = there
        run.working = confirmed(run, step, capsule)
        return reached
    store.keep_only(set())
    return state

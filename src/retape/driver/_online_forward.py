"""The forward sweep of a run whose length only its end tells."""

from operator import index
from time import perf_counter
from typing import TypeVar

from retape._errors import SnapshotError
from retape.driver._interrupt import safe_point
from retape.driver._obey import Loop
from retape.schedule._online import Placement
from retape.storage import SnapshotStore

C = TypeVar("C")
A = TypeVar("A")
R = TypeVar("R")


def sweep_forward(
    loop: Loop[C, A, R], state: Placement, alpha: int
) -> tuple[int, Placement]:
    """Run to the end, storing on the way.

    A stage is asked about when the one after it has begun, so that the last stage is
    never stored. `loop` is left before the last stage, with `loop.length` set.

    Args:
        loop: The run, at its beginning or where `find_place` put it.
        state: The controller, asked about all stages before `loop.at`.
        alpha: The stage length.

    Returns:
        The number of steps, and the controller's last state.
    """
    stage = loop.at // alpha
    # The working capsule must last: a machine that overwrites capsules runs a copy.
    held, given = loop.look(loop.at), [loop.copied(loop.look(loop.at))]
    after, made, loop.working = _advance(loop, given, held, state, alpha, stage)
    while made == alpha:
        held, given = loop.copied(after), [after]
        del after  # Popped there, so that the run alone keeps it alive.
        ahead = _asked(state, stage)
        beyond, more, held = _advance(loop, given, held, ahead, alpha, stage + 1)
        if more == 0:
            break
        state, beyond = place(loop, state, stage, alpha, beyond)
        stage += 1
        loop.working, loop.at = held, stage * alpha
        after, made = beyond, more
        del held, beyond  # The run alone keeps what it goes on from alive.
        safe_point(loop)
    loop.length = stage * alpha + made
    return loop.length, state


def _asked(state: Placement, stage: int) -> Placement:
    return state if _has(state, stage) else state.place(stage)[0]


def _has(state: Placement, stage: int) -> bool:
    """Whether this is a stage that an earlier process has stored already."""
    return bool(state.positions) and stage <= state.positions[-1]


def place(
    loop: Loop[C, A, R], state: Placement, stage: int, alpha: int, beyond: C
) -> tuple[Placement, C]:
    """Ask the controller about a stage whose start is the working capsule.

    Args:
        loop: The run.
        state: The controller, asked about the stages before.
        stage: The stage.
        alpha: The stage length.
        beyond: The capsule that the run is at. It may be in memory of the program's,
            which writes there when it makes a snapshot anew that was lost.
    """
    if _has(state, stage):
        return state, beyond
    state, placed = state.place(stage)
    if placed.moved:
        beyond = loop.copied(beyond)
    for at, near, far in placed.moved:
        loop.move(at * alpha, near, far)
    for at, slot in placed.dropped:
        loop.drop(at * alpha, slot, placed.tier)
    if placed.slot is not None:
        capsule, tier = loop.look(loop.at), placed.tier
        # The run is beyond it: no step may be run from there, in memory that is used.
        loop.put(stage * alpha, placed.slot, tier, capsule)
    return state, beyond


def find_place(
    loop: Loop[C, A, R], state: Placement, alpha: int, store: SnapshotStore[C]
) -> Placement:
    """Go on from the last snapshot of an earlier process's forward sweep.

    A run that was interrupted has left one more, where it was: the controller has not
    been asked about that stage yet.
    """
    # From a state that is no more than near the run would come to another end.
    there = set[int]() if store.is_lossy else store.steps()
    for step in sorted(there, reverse=True):
        if step % alpha:
            continue
        try:
            capsule = store.get(step, 0, "disk")
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
        loop.slots = {(tier, slot): at * alpha for at, slot, tier in held}
        loop.tiers.took_up(reached.tiers)
        store.keep_only(set(loop.slots.values()))
        loop.at = loop.skipped = step
        loop.went_on()
        if loop.proof is not None:
            loop.proof.old = there
        loop.working = loop.confirm(step, capsule)
        loop.ahead = None
        return reached
    store.keep_only(set())
    return state


def _advance(
    loop: Loop[C, A, R],
    given: list[C],
    held: C,
    state: Placement,
    alpha: int,
    stage: int,
) -> tuple[C, int, C]:
    """Run a stage, or to the end.

    Args:
        loop: The run.
        given: The start of the stage, for the machine to overwrite.
        held: The same, which may be stored when it is known that the run goes on.
        state: The controller, asked about the stages before.
        alpha: The stage length.
        stage: The stage.

    Returns:
        The capsule after it, the steps made, and `held`; if it will be stored, it says
        what the first of the steps does.
    """
    began, capsule = perf_counter(), given.pop()
    start = step = stage * alpha
    stop = start + alpha
    signs = loop.proof is not None and _is_stored(state, stage)
    while step < stop:
        upto = loop.verifier.next_stop(step, stop) if loop.verifier else stop
        upto = start + 1 if signs else upto
        capsule, count = loop.machine.advance(capsule, upto - step)
        made = index(count)
        if signs and loop.proof is not None:
            held, signs = loop.proof.machine.sign(held, capsule), False
        if loop.verifier and step + made == upto:
            loop.verifier.check(step, upto, capsule)
        step += made
        if step < upto:
            break
    total = step - start
    loop.report.advances += total
    loop.spend("forward", began)
    loop.tell()
    return capsule, total, held


def _is_stored(state: Placement, stage: int) -> bool:
    return not _has(state, stage) and state.place(stage)[1].slot is not None

"""The actions that remain of a run, by its plan and by what its store has of it.

**Ahead.** A schedule is known in advance, so a store is told what it will be asked for
next. One that reads in the background says so (`reads_ahead`), and its `prefetch` tells
whether there is something to do: what is in memory is not read. From the moment at
which the last read is done, the next one goes on beside the computing.

**To an end that is not known.** The stages on the way there are advanced one after the
other. Whether the start of one is kept is decided when the next one has begun, so that
the last stage, of which the way back begins, is never stored:

    stage       0       1       2
            |-------|-------|-------> the working capsule
                    ^ `behind`: kept, if the run goes on here
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from retape.driver._early_end import stoppable
from retape.driver._machine import TapingMachine, cannot_tape, offers
from retape.driver._resume import fetch, skip_done, stand_at, written
from retape.schedule import Advance, Restore, Store, Sweep, Tape
from retape.schedule._action import Action
from retape.schedule._cost import Counts
from retape.schedule._placing._online import Online, Placement
from retape.storage import Place, Record, SnapshotStore

if TYPE_CHECKING:
    from retape.driver._loop import Run

_AHEAD = 10_000
"""Actions that are looked at before they are due."""

_Places: TypeAlias = Counter[tuple[str, int]]
"""How many of the actions that are looked at write to a slot of a tier."""


class Planner(Protocol):
    """The part of a plan that the driver uses."""

    def online(self, capsule_bytes: int | None, tape_bytes: int | None) -> Online: ...

    def schedule(
        self, n: int, capsule_bytes: int | None, tape_bytes: int | None
    ) -> Counted: ...


@runtime_checkable
class Counted(Protocol):
    """A schedule that knows what it costs."""

    def __iter__(self) -> Iterator[Action]: ...

    def counts(self) -> Counts: ...


def remaining(
    run: Run,
    plan: Planner | Iterable[Action],
    tape_bytes: int | None,
    record: Record | None,
) -> Iterable[Action]:
    """The actions that remain; they end early where `retape.interruptible` says so."""
    return stoppable(run, _planned(run, plan, tape_bytes, record))


def _planned(
    run: Run,
    plan: Planner | Iterable[Action],
    tape_bytes: int | None,
    record: Record | None,
) -> Iterable[Action]:
    if isinstance(plan, Iterable):
        actions: Iterable[Action] = plan
        if isinstance(plan, Counted):
            _foresee(run, plan)
    else:
        capsule_bytes = None if tape_bytes is None else _capsule_bytes(run)
        capsule_bytes = run.store.largest(capsule_bytes)
        tape_bytes = run.store.largest(tape_bytes)
        if run.length is not None:
            actions = plan.schedule(run.length, capsule_bytes, tape_bytes)
            _foresee(run, actions)
        else:
            online = plan.online(capsule_bytes, tape_bytes)
            if online.keeps_tapes and not offers(run.machine, TapingMachine):
                raise cannot_tape(run.machine)
            if record is None or record.length is None:
                return to_the_end(run, online)
            run.length = record.length
            advances = online.advances(record.length)
            run.total = None if advances is None else record.length + advances
            actions = online.actions(record.length)
    if run.durable is not None:
        actions = skip_done(run, actions, record, run.durable)
    return foretold(actions, run.store)


def _capsule_bytes(run: Run) -> int:
    """What keeping a capsule takes; a store that packs tells by the first one."""
    capsule = run.look(0)
    return run.store.capsule_bytes(capsule, run.machine.nbytes(capsule))


def _foresee(run: Run, schedule: Counted) -> None:
    """The work of a schedule; one that this machine cannot obey is refused here."""
    counts = schedule.counts()
    if counts.kept_tapes and not offers(run.machine, TapingMachine):
        raise cannot_tape(run.machine)
    run.total = counts.advances + counts.taped


# Ahead -----------------------------------------------------------------------------


def foretold(actions: Iterable[Action], store: SnapshotStore[Any]) -> Iterable[Action]:
    """The same actions; the store is told of each read when the one before is done."""
    return _told(actions, store) if store.reads_ahead else actions


def _told(actions: Iterable[Action], store: SnapshotStore[Any]) -> Iterator[Action]:
    rest, ahead, written = iter(actions), deque[Action](), _Places()
    found: Action | None = None
    while True:
        while found is None and len(ahead) < _AHEAD:
            action = next(rest, None)
            if action is None:
                break
            if isinstance(action, Restore | Sweep):
                found = action if _tell(action, written, store) else None
            elif isinstance(action, Store | Tape):
                written[action.tier, action.slot] += 1
            ahead.append(action)
        if not ahead:
            return
        first = ahead.popleft()
        if isinstance(first, Store | Tape):
            written[first.tier, first.slot] -= 1
        yield first
        if first is found:
            found = None


def _tell(read: Restore | Sweep, written: _Places, store: SnapshotStore[Any]) -> bool:
    """Announce a read, unless that is still to be written; whether it is far."""
    if written[read.tier, read.slot] > 0:
        return not store.is_near(read.tier)
    is_tape = isinstance(read, Sweep)
    step = read.start if is_tape else read.step
    return store.prefetch(Place(step, read.slot, read.tier, is_tape))


# To an end that is not known -------------------------------------------------------


def to_the_end(run: Run, online: Online) -> Iterator[Action]:
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
            here = run.machine.sign(here, run.look(first))
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


def _is_stored(run: Run, state: Placement, stage: int, alpha: int) -> bool:
    """Whether the start of a stage will be stored, if the run goes on after it."""
    if run.behind is not None:
        before = run.behind[0] // alpha
        state = state if _has(state, before) else state.place(before)[0]
    return not _has(state, stage) and state.place(stage)[1].slot is not None


def _has(state: Placement, stage: int) -> bool:
    """Whether this is a stage that an earlier process has stored already."""
    return bool(state.positions) and stage <= state.positions[-1]


def _place(
    run: Run, state: Placement, step: int, capsule: Any, alpha: int
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


def _move(run: Run, near: Place, far: Place) -> None:
    """Put what is in one slot into another, on another tier."""
    # One that was lost with an earlier process is made again.
    capsule = fetch(run, near)
    began = perf_counter()
    # First out, then in: a store of one kind knows a snapshot by its step.
    run.store.drop(near)
    run.free(near)
    run.store.put(far, capsule, run.machine.nbytes(capsule))
    run.holds(far)
    run.tiers.read(near.tier)
    run.tiers.wrote(far.tier)
    run.spend("storage", began)


def _find_place(
    run: Run, state: Placement, alpha: int, store: SnapshotStore[Any]
) -> Placement:
    """Go on from the last snapshot of an earlier process's way to the end.

    A run that was interrupted has left one more, where it was: the controller has not
    been asked about that stage yet.
    """
    # From a state that is no more than near the run would come to another end.
    there = set[int]() if store.is_lossy else store.steps()
    for step in sorted(there, reverse=True):
        capsule = None if step % alpha else written(store, step)
        if capsule is None:
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
        run.skipped = step
        if run.proof is not None:
            run.proof.old = there
        stand_at(run, step, capsule)
        return reached
    store.keep_only(set())
    return state

"""Reading a slot, and making its contents anew if they are lost or damaged.

The state before a step follows from any earlier state, and the tape of a stage from the
state before it. All that was lost on the way is put back as it is passed: where a
process died with hundreds of snapshots in memory, one pass restores them.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from retape._errors import SnapshotError
from retape.driver._proof import confirmed

if TYPE_CHECKING:
    from retape.driver._loop import Run, Slot

C = TypeVar("C")
A = TypeVar("A")
R = TypeVar("R")


def fetch(run: Run[C, A, R], step: int, slot: Slot) -> Any:
    """The capsule or the tape in a slot; recomputed if it is lost."""
    began = perf_counter()
    try:
        return _get(run, step, slot)
    except SnapshotError:
        run.report.repaired += 1
    finally:
        run.spend("storage", began)
    at, capsule, lost = _earlier(run, step)
    capsule = run.copied(capsule)
    run.report.repaired += len(lost)
    if run.total is not None:
        run.total += run.tapes.get(slot, step) - at
    run.tell()
    made: Any = capsule
    for between, place in [*reversed(lost), (step, slot)]:
        if at < between:
            capsule, at = run.advance(capsule, at, between)
        tier, number = place
        run.store.drop(between, number, tier, tape=place in run.tapes)
        run.tiers.freed(tier)
        if place in run.tapes:
            stop = run.tapes[place]
            made, capsule = run.tape(capsule, between, stop)
            run.put(between, place, made, stop)
            at = stop
        else:
            made = capsule = run.keep(between, place, capsule)
    return made


def _earlier(run: Run[C, A, R], step: int) -> tuple[int, C, list[tuple[int, Slot]]]:
    """The latest readable state before `step`, and what is lost in between."""
    held = sorted(((at, place) for place, at in run.slots.items()), reverse=True)
    lost: list[tuple[int, Slot]] = []
    for at, place in held:
        if at >= step:
            continue
        try:
            value = _get(run, at, place)
        except SnapshotError:
            lost.append((at, place))
        else:
            if place not in run.tapes:
                return at, value, lost
    return 0, run.machine.start(), lost


def _get(run: Run[C, A, R], step: int, slot: Slot) -> Any:
    tier, number = slot
    tape = slot in run.tapes
    found: Any = run.store.get(step, number, tier, tape=tape)
    return found if tape else confirmed(run, step, found)

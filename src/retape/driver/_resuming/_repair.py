"""Reading a slot, and making its contents anew if they are lost or damaged.

The state before a step follows from any earlier state, and the tape of a stage from the
state before it. All that was lost on the way is put back as it is passed: where a
process died with hundreds of snapshots in memory, one pass restores them.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from retape._errors import SnapshotError
from retape.driver._resuming._proof import confirmed
from retape.storage import Place

if TYPE_CHECKING:
    from retape.driver._loop import Run

C = TypeVar("C")
A = TypeVar("A")
R = TypeVar("R")


def fetch(run: Run[C, A, R], place: Place) -> Any:
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
    made: Any = capsule
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


def _earlier(run: Run[C, A, R], step: int) -> tuple[int, C, list[Place]]:
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


def _get(run: Run[C, A, R], place: Place) -> Any:
    found: Any = run.store.get(place)
    return found if place.tape else confirmed(run, place.step, found)

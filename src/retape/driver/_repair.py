"""Reading a slot, and making its contents anew if they are lost or damaged.

The state before a step follows from any earlier state, and the tape of a stage from the
state before it. All that was lost on the way is put back as it is passed: where a
process died with hundreds of snapshots in memory, one pass restores them.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from retape._errors import SnapshotError

if TYPE_CHECKING:
    from retape.driver._obey import Loop, Slot

C = TypeVar("C")
A = TypeVar("A")
R = TypeVar("R")


def fetch(loop: Loop[C, A, R], step: int, slot: Slot) -> Any:
    """The capsule or the tape in a slot; recomputed if it is lost."""
    began = perf_counter()
    try:
        return _get(loop, step, slot)
    except SnapshotError:
        loop.report.repaired += 1
    finally:
        loop.spend("storage", began)
    at, capsule, lost = _earlier(loop, step)
    capsule = loop.copied(capsule)
    loop.report.repaired += len(lost)
    if loop.total is not None:
        loop.total += loop.tapes.get(slot, step) - at
    loop.tell()
    made: Any = capsule
    for between, place in [*reversed(lost), (step, slot)]:
        if at < between:
            capsule, at = loop.advance(capsule, at, between), between
        tier, number = place
        loop.store.drop(between, number, tier, tape=place in loop.tapes)
        loop.tiers.freed(tier)
        if place in loop.tapes:
            stop = loop.tapes[place]
            made, capsule = loop.tape(capsule, between, stop)
            loop.keep_tape(between, stop, number, tier, made)
            at = stop
        else:
            made = capsule = loop.keep(between, number, tier, capsule)
    return made


def _earlier(loop: Loop[C, A, R], step: int) -> tuple[int, C, list[tuple[int, Slot]]]:
    """The latest readable state before `step`, and what is lost in between."""
    held = sorted(((at, place) for place, at in loop.slots.items()), reverse=True)
    lost: list[tuple[int, Slot]] = []
    for at, place in held:
        if at >= step:
            continue
        try:
            value = _get(loop, at, place)
        except SnapshotError:
            lost.append((at, place))
        else:
            if place not in loop.tapes:
                return at, value, lost
    return 0, loop.machine.start(), lost


def _get(loop: Loop[C, A, R], step: int, slot: Slot) -> Any:
    tier, number = slot
    tape = slot in loop.tapes
    found: Any = loop.store.get(step, number, tier, tape=tape)
    return found if tape else loop.confirm(step, found)

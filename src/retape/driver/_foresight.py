"""Telling a store what it will be asked for next: a schedule is known in advance.

A store that reads in the background says so (`reads_ahead`), and its `prefetch` tells
whether there is something to do: what is in memory is not read. From the moment at
which the last read is done, the next one goes on beside the computing.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from retape.schedule import Restore, Store, Sweep, Tape
from retape.schedule._action import Action
from retape.storage import Place, SnapshotStore

_AHEAD = 10_000
"""Actions that are looked at before they are due."""

_Places: TypeAlias = Counter[tuple[str, int]]
"""How many of the actions that are looked at write to a slot of a tier."""


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

"""Telling a store what it will be asked for next: a schedule is known in advance.

A store that reads in the background has a method `prefetch`. From the moment at which
the last read is done, the next one goes on beside the computing.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from retape.schedule import Action, Restore, Store, Sweep, Tape

_AHEAD = 1000
"""Actions that are looked at before they are due; between two reads there are few."""


def foretold(actions: Iterable[Action], store: object) -> Iterable[Action]:
    """The same actions; the store is told of each read when the one before is done."""
    prefetch: Any = getattr(store, "prefetch", None)
    return actions if prefetch is None else _told(actions, prefetch)


def _told(actions: Iterable[Action], prefetch: Any) -> Iterator[Action]:
    rest, ahead = iter(actions), deque[Action]()
    found: Action | None = None
    while True:
        while found is None and len(ahead) < _AHEAD:
            action = next(rest, None)
            if action is None:
                break
            if isinstance(action, Restore | Sweep):
                found = action
                _tell(found, ahead, prefetch)
            ahead.append(action)
        if not ahead:
            return
        first = ahead.popleft()
        yield first
        if first is found:
            found = None


def _tell(read: Restore | Sweep, before: Iterable[Action], prefetch: Any) -> None:
    """Announce a read, unless what it reads is still to be written."""
    place = read.tier, read.slot
    if any(isinstance(a, Store | Tape) and (a.tier, a.slot) == place for a in before):
        return
    is_tape = isinstance(read, Sweep)
    step = read.start if is_tape else read.step
    prefetch(step, read.slot, read.tier, tape=is_tape)

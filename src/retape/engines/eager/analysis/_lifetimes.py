"""How long a program itself holds what it makes: local variables are held beyond use.

A record shows what a program reads again and not how long it holds what it has made.
That is seen in a budget of one byte: the keeper lets go of all it can after each
operator, and a storage that is there then is the program's.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import UntypedStorage as Storage

from retape.engines.eager.analysis._columns import Columns, crossing
from retape.engines.eager.analysis._uses import Slots, Uses
from retape.engines.eager.trace._holdings import TAG
from retape.engines.eager.trace._run import Run

_WATCHED = "_retape_lifetime"


class HeldSpan(NamedTuple):
    """Positions at which the program holds a slot: from `first`, before `stop`."""

    first: int
    stop: int
    slot: int


class _Watched:
    """Hangs on a storage and dies with it, as the note does that counts its bytes."""

    __slots__ = ("_gone", "slots")

    def __init__(self, gone: list[int]) -> None:
        self._gone = gone
        self.slots: list[int] = []

    def __del__(self) -> None:
        self._gone += self.slots


class Lifetimes:
    """Looks at the storages that a run has made, before each of its operators.

    It looks at what has changed: a loop that keeps its results has as many as steps.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._new: list[int] = []
        self._gone: list[int] = []
        self._first: dict[int, int] = {}
        self._stop: dict[int, int] = {}

    def made(self, storage: Storage) -> None:
        """An operator has returned a storage."""
        buffer = getattr(storage, TAG, None)
        trace = self._run.trace
        if buffer is None or buffer.owner is not trace.owner:
            return
        watched = getattr(storage, _WATCHED, None)
        if watched is None or watched._gone is not self._gone:
            watched = _Watched(self._gone)
            setattr(storage, _WATCHED, watched)
        slot = buffer.slot
        if trace.producer[slot] >= 0 and slot not in watched.slots[-1:]:
            watched.slots.append(slot)
            self._new.append(slot)

    def look(self) -> None:
        """Note which are there now."""
        position = len(self._run.trace.steps)
        self._first.update(dict.fromkeys(self._new, position))
        self._new.clear()
        self._stop.update(dict.fromkeys(self._gone, position))
        self._gone.clear()

    def there(self) -> list[HeldSpan]:
        """What the program itself holds.

        What is there at the end is not counted: plans leave room for that all the time.
        """
        return [
            HeldSpan(self._first[slot], stop, slot) for slot, stop in self._stop.items()
        ]


class OwnPeaks:
    """Most bytes while the program itself runs a unit.

    Args:
        uses: Of the record; `columns`: its own.
        there: What the program holds; `None` if nobody has looked.

    Attributes:
        needs: For each step, the most bytes that running it may add.
    """

    def __init__(
        self, uses: Uses, columns: Columns, there: Sequence[HeldSpan] | None
    ) -> None:
        self._uses = uses
        self._there = None if there is None else np.array(there).reshape(-1, 3)
        # Bytes that a step makes, copies and works in.
        self.needs: Any = columns.kernel + columns.made_bytes
        self._nbytes = columns.nbytes

    def of(self, first: int, last: int, before: Slots, taped: bool) -> int:
        """The most bytes of a unit, the state before it left out; 0 if not known.

        Of a unit that is taped what is on tapes before is left out, too: units before
        it, in which local variables were made, are taped as a rule.
        """
        uses, there = self._uses, self._there
        if there is None:
            return 0
        first_of, stop_of, _ = there.T
        here = there[(first_of < last) & (stop_of > first)].tolist()
        tape = dict[int, int]()
        if taped:
            before = before.union(slot for step, slot in uses.saved if step < first)
            found = uses.tape(first, last).items()
            tape = {slot: step for slot, step in found if slot not in before}
        # What is held and then on a tape is there once.
        spans = [
            (max(begin, first), min(stop, tape.get(slot, last)), slot)
            for begin, stop, slot in here
            if slot not in before
        ]
        spans += [(step, last, slot) for slot, step in tape.items()]
        spans = [each for each in spans if each[0] < each[1]]
        begin, stop, slot = np.array(spans, dtype=np.int64).reshape(-1, 3).T
        sizes, length = self._nbytes[slot], last - first
        held = crossing(begin - first, stop - first, sizes, length)
        return int((held + self.needs[first:last]).max(initial=0))

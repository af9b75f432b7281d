"""How long a program itself holds what it makes: local variables are held beyond use.

A record shows what a program reads again and not how long it holds what it has made.
That is seen in a budget of one byte: the keeper lets go of all it can after each
operator, and a storage that is there then is the program's.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torch import UntypedStorage as Storage

from retape.engines.eager.analysis._uses import Slots, Uses
from retape.engines.eager.trace._holdings import TAG
from retape.engines.eager.trace._run import Run

_WATCHED = "_retape_lifetime"


class HeldSpan(NamedTuple):
    """Positions at which the program holds a slot: from `first`, before `stop`."""

    first: int
    stop: int
    slot: int


class Presence:
    """What a program holds itself, by position."""

    def __init__(self, spans: Iterable[HeldSpan]) -> None:
        self._begins: defaultdict[int, list[HeldSpan]] = defaultdict(list)
        self._ends: defaultdict[int, list[HeldSpan]] = defaultdict(list)
        for span in spans:
            self._begins[span.first].append(span)
            self._ends[span.stop].append(span)

    def at(self, position: int) -> set[int]:
        """The slots that are held at a position."""
        began = (each for p, found in self._begins.items() if p <= position
                 for each in found)  # fmt: skip
        return {each.slot for each in began if position < each.stop}

    def begin(self, position: int) -> Iterator[int]:
        """The slots that are held from a position on."""
        return (each.slot for each in self._begins.get(position, ()))

    def end(self, position: int) -> Iterator[int]:
        """The slots that were held until a position."""
        return (each.slot for each in self._ends.get(position, ()))


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
        # By slots that are there and held by a snapshot, since when they are.
        self._held: dict[int, int] = {}
        self._was_held: list[HeldSpan] = []

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
        """Note which are there now, and which of them a snapshot holds."""
        position = len(self._run.trace.steps)
        self._first.update(dict.fromkeys(self._new, position))
        self._new.clear()
        self._stop.update(dict.fromkeys(self._gone, position))
        self._gone.clear()
        held: Mapping[int, Any] = self._run.trace.held.storages
        here = [slot for slot in held if self._is_there(slot)]
        for slot in self._held.keys() - here:
            self._was_held.append(HeldSpan(self._held.pop(slot), position, slot))
        for slot in here:
            self._held.setdefault(slot, position)

    def _is_there(self, slot: int) -> bool:
        return slot in self._first and slot not in self._stop

    def there(self) -> Presence:
        """By position, what the program holds there.

        What a snapshot holds and nobody reads any more is not counted as its own, nor
        what is there at the end: plans leave room for that all the time.
        """
        used, left = Uses(self._run).last_use, defaultdict[int, list[HeldSpan]](list)
        for span in self._was_held:
            first = max(span.first, used.get(span.slot, -1) + 1)
            if first < span.stop:
                left[span.slot].append(HeldSpan(first, span.stop, span.slot))
        return Presence(
            part
            for slot, stop in self._stop.items()
            for part in _without(HeldSpan(self._first[slot], stop, slot), left[slot])
        )


def _without(span: HeldSpan, parts: Sequence[HeldSpan]) -> Iterator[HeldSpan]:
    """A span without parts of it, which are in order."""
    first = span.first
    for part in parts:
        if first < part.first:
            yield HeldSpan(first, part.first, span.slot)
        first = part.stop
    if first < span.stop:
        yield HeldSpan(first, span.stop, span.slot)


class OwnPeaks:
    """Most bytes while the program itself runs a unit.

    Args:
        uses: Of the record.
        needs: For each step, the most bytes that running it may add.
        there: What the program holds; `None` if nobody has looked.
    """

    def __init__(
        self, uses: Uses, needs: Sequence[int], there: Presence | None
    ) -> None:
        self._uses, self._needs, self._there = uses, needs, there

    def of(self, first: int, last: int, before: Slots, taped: bool) -> int:
        """The most bytes of a unit, the state before it left out; 0 if not known.

        Of a unit that is taped what is on tapes before is left out, too: units before
        it, in which local variables were made, are taped as a rule.
        """
        uses, there = self._uses, self._there
        if there is None:
            return 0
        saved: dict[int, list[int]] = defaultdict(list)
        if taped:
            before = before.union(slot for step, slot in uses.saved if step < first)
            for slot, step in uses.tape(first, last).items():
                saved[step].append(slot)
        own, tape = there.at(first) - before, set[int]()
        live, most = uses.nbytes(own), 0
        for index in range(first, last):
            if index > first:
                gone = own.intersection(there.end(index)) - set(there.begin(index))
                own -= gone
                live -= uses.nbytes(gone - tape)
                come = set(there.begin(index)) - before - own
                own |= come
                live += uses.nbytes(come - tape)
            more = set(saved.get(index, ())) - before - tape
            tape |= more
            live += uses.nbytes(more - own)
            most = max(most, live + self._needs[index])
        return most

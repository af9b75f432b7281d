"""How long a program itself holds what it makes: local variables are held beyond use.

A record shows what a program reads again and not how long it holds what it has made.
That is seen in a budget of one byte: the keeper lets go of all it can after each
operator, and a storage that is there then is the program's.
"""

from collections.abc import Mapping, Sequence

from torch import UntypedStorage as Storage
from torch.multiprocessing.reductions import StorageWeakRef

from retape.engines.eager.analysis._uses import Slots, Uses
from retape.engines.eager.trace._holdings import TAG
from retape.engines.eager.trace._run import Run


class Lifetimes:
    """Looks at the storages that a run has made, before each of its operators."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._alive: dict[int, StorageWeakRef] = {}
        self._seen: dict[int, tuple[Slots, Slots]] = {}

    def made(self, storage: Storage) -> None:
        """An operator has returned a storage."""
        buffer = getattr(storage, TAG, None)
        trace = self._run.trace
        if buffer is not None and buffer.owner is trace.owner:
            if trace.producer[buffer.slot] >= 0:
                self._alive[buffer.slot] = StorageWeakRef(storage)

    def look(self) -> None:
        """Note which are there now, and which of them a snapshot holds."""
        alive, held = self._alive, self._run.trace.held.storages
        for slot in [slot for slot, each in alive.items() if each.expired()]:
            del alive[slot]
        there = frozenset(alive)
        self._seen[len(self._run.trace.steps)] = there, there.intersection(held)

    def there(self) -> Mapping[int, Slots]:
        """By position, what the program holds there.

        What a snapshot holds and nobody reads any more is not counted as its own, nor
        what is there at the end: plans leave room for that all the time.
        """
        used, end = Uses(self._run).last_use, self._seen[len(self._run.trace.steps)][0]
        return {
            position: there - end - {s for s in held if used.get(s, -1) < position}
            for position, (there, held) in self._seen.items()
        }


class OwnPeaks:
    """Most bytes while the program itself runs a unit.

    Args:
        uses: Of the record.
        needs: For each step, the most bytes that running it may add.
        there: By position, what the program holds; empty if nobody has looked.
    """

    def __init__(
        self, uses: Uses, needs: Sequence[int], there: Mapping[int, Slots]
    ) -> None:
        self._uses, self._needs, self._there = uses, needs, there

    def of(self, first: int, last: int, before: Slots, taped: bool) -> int:
        """The most bytes of a unit, the state before it left out; 0 if not known.

        Of a unit that is taped what is on tapes before is left out, too: units before
        it, in which local variables were made, are taped as a rule.
        """
        uses, most = self._uses, 0
        saved = uses.tape(first, last) if taped else {}
        if taped:
            before = before.union(slot for step, slot in uses.saved if step < first)
        for index in range(first, last):
            if index in self._there:
                tape = {slot for slot, step in saved.items() if step <= index}
                held = uses.nbytes((self._there[index] | tape) - before)
                most = max(most, held + self._needs[index])
        return most

"""Uses of the values of a recorded run, by operators and by autograd."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from retape.engines.eager.analysis._columns import Columns, crossing
from retape.engines.eager.trace._run import Run
from retape.engines.eager.trace._step import made_by, steps_making

Slots = frozenset[int]


class Uses:
    """A trace, with the last use of each slot that an operator made.

    Args:
        run: A recorded run.
        alive: Which of its saved tensors were, if its backward may have been since.

    Attributes:
        length: Steps.
        last_use: For each slot, the last step that reads it to make something that
            autograd saved, or at which autograd saved it; -1 if there is none.
        saved: Pairs of a step and a slot that autograd saved there, in order.
    """

    def __init__(self, run: Run, alive: bytes | None = None) -> None:
        run.settle_places()
        living = run.alive if alive is None else alive
        self._run, self._trace = run, run.trace
        self._columns = columns = Columns.of(run.trace)
        self.length, producer = columns.length, run.trace.producer
        found = map(run.slot_of, range(len(run.places)))
        self.saved: list[tuple[int, int]] = [
            (step, slot)
            for step, slot, lives in zip(run.places, found, living, strict=True)
            if lives and producer[slot] >= 0
        ]
        steps, slots = np.array(self.saved, dtype=np.int64).reshape(-1, 2).T
        useful = np.zeros(self.length, dtype=bool)
        useful[list(self.closure(slots.tolist(), frozenset(), 0))] = True
        self.last_use: Any = np.full(len(columns.made), -1)
        some = useful[columns.reader]
        # Of a slot that is given several steps the last one stays.
        self.last_use[columns.read[some]] = columns.reader[some]
        np.maximum.at(self.last_use, slots, steps)
        self.last_use[columns.made < 0] = -1

    def nbytes(self, slots: Iterable[int]) -> int:
        """The sum of the sizes of slots."""
        nbytes = self._trace.nbytes
        return sum(nbytes[slot] for slot in slots)

    def counts(self, cut: int) -> tuple[int, int]:
        """Slots and saved tensors that there are when a run has come to a position."""
        if cut == self.length:
            return len(self._trace.producer), len(self._run.handle_steps)
        made = made_by(self._trace.steps[cut - 1]).stop if cut else 0
        return made, bisect_left(self._run.handle_steps, cut)

    def closure(self, wanted: Iterable[int], given: Slots, floor: int) -> set[int]:
        """Steps from `floor` on that compute the wanted slots from the given ones."""
        producer, steps = self._trace.producer, self._trace.steps
        return steps_making(
            wanted, given, producer, lambda step: steps[step].reads, floor
        )

    def crossing(self, cuts: Sequence[int]) -> list[Slots]:
        """For each position, the slots made before and used at or after."""
        made, used = self._columns.made, self.last_use
        return [
            frozenset(np.flatnonzero((made < cut) & (used >= cut)).tolist())
            for cut in cuts
        ]

    def late(self, cuts: Sequence[int]) -> list[Slots]:
        """For each position, the slots saved behind it that belong to a step before."""
        run, found = self._run, dict[int, set[int]]()
        pairs = zip(run.handle_steps, run.places, strict=True)
        for number, (step, place) in enumerate(pairs):
            if place < step:
                found.setdefault(step, set()).add(run.slot_of(number))
        return [frozenset(found.get(cut, ())) for cut in cuts]

    def widths(self) -> list[tuple[int, int]]:
        """For each position, the bytes made before and used at or after it.

        And those of them that autograd has not saved: no tape has these, too.
        """
        slots = np.flatnonzero(self.last_use >= 0)
        columns, used = self._columns, self.last_use[slots]
        first, nbytes = columns.made[slots] + 1, columns.nbytes[slots]
        alone = nbytes.copy()
        alone[np.isin(slots, [slot for _, slot in self.saved])] = 0
        across = (
            crossing(first, used + 1, each, self.length + 1).tolist()
            for each in (nbytes, alone)
        )
        return list(zip(*across, strict=True))

    def tape(self, first: int, last: int) -> dict[int, int]:
        """Slots that autograd saved in a unit, with the step where first it did."""
        end = last + (last == self.length)
        low, high = bisect_left(self.saved, (first,)), bisect_left(self.saved, (end,))
        found: dict[int, int] = {}
        for step, slot in self.saved[low:high]:
            found.setdefault(slot, step)
        return found

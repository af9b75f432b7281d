"""What running and reversing each unit of a recorded run takes, in bytes and cost.

Units are the input of the dynamic programme; descents are its output.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from retape.engines.eager.analysis._columns import Columns, Rerun, crossing
from retape.engines.eager.analysis._uses import Slots, Uses
from retape.engines.eager.trace._run import Run
from retape.engines.eager.trace._step import made_by


class Unit(NamedTuple):
    """Time and bytes of running and reversing one unit, given the state before it.

    Attributes:
        advance: Cost of running it for the state after it alone.
        both: Cost of running it for its tape and the state after it.
        tape: Cost of running it for its tape alone.
        tape_bytes: Bytes of its tape that are not in the state before.
        more_bytes: Bytes of its tape that are not in the tape of the unit before.
        hold_bytes: Bytes of the state before it that are not in that tape either.
        advance_peak: Most bytes while it is run without a tape.
        tape_peak: Most bytes while it is run with its tape.
        reverse_peak: Most bytes while it is reversed, its tape included.
        cotangent: Bytes of the cotangent of the state after it.
        lingering: Bytes that the unit before saved at its end: the program's own run
            holds them while this one begins.
    """

    advance: float
    both: float
    tape: float
    tape_bytes: int
    more_bytes: int
    hold_bytes: int
    advance_peak: int
    tape_peak: int
    reverse_peak: int
    cotangent: int
    lingering: int = 0


class UnitSizes:
    """Computes what running and reversing each unit takes."""

    def __init__(self, run: Run, uses: Uses, cost: Sequence[int]) -> None:
        self.trace, self.uses, self.cost = run.trace, uses, cost
        self._previous: dict[int, int] = {}
        self._columns = Columns.of(self.trace)

    def units(self, cuts: Sequence[int], states: Sequence[Slots]) -> list[Unit]:
        """The numbers of the units between some cuts, with the states there."""
        pairs = zip(pairwise(cuts), pairwise(states), strict=True)
        return [self._unit(*places, *around) for places, around in pairs]

    def _unit(self, first: int, last: int, before: Slots, after: Slots) -> Unit:
        """The numbers of a unit; units are asked for in order."""
        nbytes = self.uses.nbytes
        tape, previous = self.uses.tape(first, last), self._previous
        self._previous = tape
        advance, advance_peak = self._run_again(after, before, first)
        both, both_peak = self._run_again(frozenset(tape) | after, before, first)
        return Unit(
            advance=advance,
            both=both,
            tape=self._cost(self.uses.closure(tape, before, first)),
            tape_bytes=nbytes(tape.keys() - before),
            more_bytes=nbytes(tape.keys() - previous.keys()),
            hold_bytes=nbytes(before - previous.keys()),
            advance_peak=advance_peak,
            tape_peak=both_peak,
            reverse_peak=self._reverse_peak(first, last, before, tape),
            cotangent=int(self._columns.waiting[last]),
        )

    def lingering(self, cut: int, alone: Slots) -> int:
        """Bytes saved behind a cut for the unit before, while a step of this is run.

        Before a kernel that makes a workspace all is let go that can be.
        """
        kind = self.trace.steps[cut].signature.kind
        return 0 if kind.scratch else self.uses.nbytes(alone)

    def _run_again(self, wanted: Slots, before: Slots, first: int) -> tuple[int, int]:
        """Cost and most bytes of computing slots from a state, that state excluded."""
        steps = sorted(self.uses.closure(wanted, before, first))
        return self._cost(steps), Rerun(self._columns, steps).peak(wanted)

    def _cost(self, steps: Iterable[int]) -> int:
        return sum(self.cost[index] for index in steps)

    def _reverse_peak(
        self, first: int, last: int, before: Slots, tape: dict[int, int]
    ) -> int:
        """Most bytes of tape and cotangents while a unit is reversed."""
        nbytes, after = self.uses.nbytes, self._saved_after(last, tape)
        own = {slot: step for slot, step in tape.items() if slot not in before}
        # A step finds what autograd saved up to the one after it.
        slots, length = [*own, *after], last - first
        saved = np.array([*own.values(), *[last] * len(after)], dtype=np.int64)
        left = crossing(
            np.maximum(0, saved - 1 - first),
            np.full(len(slots), length),
            self._columns.nbytes[slots],
            length,
        )
        back = self._columns.going_back[first:last] + left
        return max(nbytes(own), int(back.max(initial=0)))

    def _saved_after(self, last: int, tape: dict[int, int]) -> list[int]:
        """Results of the last step of a unit that autograd saves and no step reads.

        They are saved when the next unit has begun, and needed in this one, as the
        workspace of a recurrent layer is.
        """
        step = self.trace.steps[last - 1]
        following = self.trace.steps[last : last + 1]
        read = {slot for each in following for slot in each.reads}
        if step.signature.kind.scratch:
            read.clear()  # it needs all of its results
        results = set(made_by(step)) - read - tape.keys()
        return [slot for slot in results if self.uses.last_use[slot] == last]

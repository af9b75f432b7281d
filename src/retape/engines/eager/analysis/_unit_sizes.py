"""What running and reversing each unit of a recorded run takes, in bytes and cost."""

from collections.abc import Sequence

from retape.engines.eager.analysis._cotangent_bytes import kernel_bytes
from retape.engines.eager.analysis._liveness import step_cotangents
from retape.engines.eager.analysis._units import Unit
from retape.engines.eager.analysis._uses import Slots, Uses
from retape.engines.eager.trace._run import Run
from retape.engines.eager.trace._step import made_by
from retape.engines.eager.trace._trace import Trace
from retape.schedule._running_sums import running_sums


class UnitSizes:
    """Computes what running and reversing each unit takes."""

    def __init__(self, run: Run, uses: Uses, cost: Sequence[int]) -> None:
        self.trace, self.uses, self.cost = run.trace, uses, cost
        self._previous: dict[int, int] = {}
        self._inner = _inner(self.trace)
        self._waiting = _waiting(self.trace, self._inner)

    def unit(self, first: int, last: int, before: Slots, after: Slots) -> Unit:
        """The numbers of a unit; units are asked for in order."""
        nbytes = self.uses.nbytes
        tape, previous = self.uses.tape(first, last), self._previous
        self._previous = tape
        advance, advance_peak = self._run_again(after, before, first)
        both, both_peak = self._run_again(frozenset(tape) | after, before, first)
        return Unit(
            advance=advance,
            both=both,
            tape=self._run_again(frozenset(tape), before, first)[0],
            tape_bytes=nbytes(tape.keys() - before),
            more_bytes=nbytes(tape.keys() - previous.keys()),
            hold_bytes=nbytes(before - previous.keys()),
            advance_peak=advance_peak,
            tape_peak=both_peak,
            reverse_peak=self._reverse_peak(first, last, before, tape),
            cotangent=self._waiting[last],
        )

    def lingering(self, cut: int, alone: Slots) -> int:
        """Bytes saved behind a cut for the unit before, while a step of this is run.

        Before a kernel that makes a workspace all is let go that can be.
        """
        kind = self.trace.steps[cut].signature.kind
        return 0 if kind.scratch else self.uses.nbytes(alone)

    def _run_again(self, wanted: Slots, before: Slots, first: int) -> tuple[int, int]:
        """Cost and most bytes of computing slots from a state, that state excluded."""
        trace = self.trace
        steps = sorted(self.uses.closure(wanted, before, first))
        last_read: dict[int, int] = {}
        for index in steps:
            last_read.update(dict.fromkeys(trace.steps[index].reads, index))
        live = peak = 0
        alive: dict[int, int] = {}
        for index in steps:
            step, made = trace.steps[index], made_by(trace.steps[index])
            for slot in made:
                alive[slot] = trace.nbytes[slot]
                live += alive[slot]
            kernel = kernel_bytes(trace, step.signature, step.reads, made)
            peak = max(peak, live + kernel)
            for slot in (*step.reads, *made):
                dead = slot not in wanted and last_read.get(slot, -1) <= index
                if dead and slot in alive:
                    live -= alive.pop(slot)
        return sum(self.cost[index] for index in steps), peak

    def _reverse_peak(
        self, first: int, last: int, before: Slots, tape: dict[int, int]
    ) -> int:
        """Most bytes of tape and cotangents while a unit is reversed."""
        trace, nbytes = self.trace, self.uses.nbytes
        # In the order in which autograd saved them.
        own = [(step, slot) for slot, step in tape.items() if slot not in before]
        after = self._saved_after(last, tape)
        peak = nbytes(slot for _, slot in own)
        left = peak + nbytes(after)
        own += [(last, slot) for slot in after]
        for index in range(last - 1, first - 1, -1):
            while own and own[-1][0] > index + 1:
                left -= trace.nbytes[own.pop()[1]]
            taken = step_cotangents(trace, index) + self._waiting_beside(index)
            peak = max(peak, taken + left)
        return peak

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
        return [slot for slot in results if self.uses.last_use.get(slot, -1) == last]

    def _waiting_beside(self, index: int) -> int:
        """Cotangents that wait while a step is reversed.

        What is read later, too, has one already, and gets a second one.
        """
        trace, step = self.trace, self.trace.steps[index]
        given = zip(step.reads, step.signature.differentiable, strict=True)
        first = {s for s, flag in given if flag and trace.last_read[s] == index}
        return self._waiting[index] - self.uses.nbytes(first & self._inner)


def _inner(trace: Trace) -> set[int]:
    """The slots made by steps that may get a cotangent."""
    steps, roots = trace.steps, trace.roots
    return {
        slot
        for slot, made in enumerate(trace.producer)
        if made >= 0 and not steps[made].signature.passive
        if roots[slot].dtype.is_floating_point or roots[slot].dtype.is_complex
    }


def _waiting(trace: Trace, inner: set[int]) -> list[int]:
    """For each position, the bytes made before it and read at or after it."""
    uses = ((s, trace.producer[s], trace.last_read[s]) for s in inner)
    waiting = ((m + 1, r + 1, trace.nbytes[s]) for s, m, r in uses if r > m)
    return running_sums(waiting, len(trace.steps) + 2)

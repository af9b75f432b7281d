"""The fewest bytes in which a recorded run can be reversed; less is refused.

The bytes of running the program again are among them, up to each of its positions.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from retape._errors import BudgetError
from retape.engines.eager._limits import BACKWARD_NUMBERS, ample_budget
from retape.engines.eager.analysis._columns import Columns, Rerun
from retape.engines.eager.analysis._cotangent_bytes import state_bytes, sum_bytes
from retape.engines.eager.analysis._measured import outside_bytes
from retape.engines.eager.trace._step import Step, made_by
from retape.engines.eager.trace._trace import Trace

if TYPE_CHECKING:
    from retape.engines.eager.trace._run import Run


def check_budget(
    run: "Run", memory: int, room: int, record: int, floor: int, relieved: bool
) -> None:
    """Refuse a budget in which the backward of a run cannot be done.

    Args:
        run: The run, recorded to its end.
        memory: The budget, in bytes.
        room: What of it is left for tensors of the program.
        record: The other bytes of the budget: the record's where nothing is held.
        floor: A room below is too small for what was alive at once.
        relieved: Whether values were let go.

    Raises:
        BudgetError: It names the least.
    """
    if room > max(floor, _enough(run, room, relieved)):
        return
    in_flight = run.trace.in_flight
    excess = in_flight.wait_for(lambda: max(floor, least_memory(run)) - room)
    if excess > 0:
        tensors = room + int(excess)
        least = ample_budget(tensors + in_flight.nbytes, record)
        raise BudgetError(
            f"`memory={memory}` bytes are too few for this run of "
            f"`{len(run.trace.steps)}` operators; it needs at least `{least}`"
            f"{_of_which(least, tensors)}. Give that much, or make the largest "
            "tensors of the program smaller.",
            least=least,
        )


def _of_which(least: int, tensors: int) -> str:
    record = least - tensors
    if record <= tensors // 10:
        return ""
    return (
        f", of which `{record}` are for the record of its operators, which takes the "
        "same memory on the host"
    )


def _enough(run: "Run", room: int, relieved: bool) -> int:
    """Bytes that are surely enough: most budgets need no analysis of the run."""
    trace = run.trace
    enough = 8 * trace.largest + sum_bytes(trace) + trace.pinned_bytes
    if room <= enough or not relieved:
        return enough
    kept = trace.kept_bytes + state_bytes(trace) + _held_by_program(run)
    # What is computed again, and the cotangents of what waits for the backward.
    return enough + kept + 2 * Columns.of(trace).narrow


def least_memory(run: "Run") -> int:
    """The fewest bytes in which a run can be reversed, one step's values at a time."""
    trace = run.trace
    last = len(trace.steps)
    run.settle_places()
    # What the program holds; at least one tensor, for what no formula has told.
    spare = max(map(_tensor_bytes, trace.steps, repeat(trace)), default=0)
    spare = max(spare, _held_by_program(run))
    saved = run.living_with_steps(0, last)
    at = Counter[int]()
    for slot, step in set(saved):
        at[step] += trace.nbytes[slot]
    back = int(Columns.of(trace).going_back.max(initial=0))
    back += max(at.values(), default=-back)
    least = max(back, most_from_start(trace, saved))
    kept = trace.kept_bytes + sum_bytes(trace) + state_bytes(trace)
    return least + spare + kept + trace.pinned_bytes + BACKWARD_NUMBERS


def _tensor_bytes(step: Step, trace: Trace) -> int:
    """The largest result of a step, workspaces of its kernel left out."""
    made = made_by(step)
    if step.signature.scratch_bytes:
        made = [s for s in made if trace.roots[s].dtype is not torch.uint8]
    return max((trace.nbytes[slot] for slot in made), default=0)


def _held_by_program(run: "Run") -> int:
    """Bytes; 0 where snapshots are away, and it is not known which are in memory."""
    return 0 if run.trace.held.elsewhere is not None else outside_bytes(run)


def most_from_start(trace: Trace, saved: Sequence[tuple[int, int]]) -> int:
    """The most bytes of recomputing, from the program's start, what a step saved.

    Cotangents that wait at that step are among them. The bytes grow with the position
    and what waits there does not, so of a stretch no more can come than its end takes
    with the most that waits in it: one with less than was found is not looked at.

    Args:
        trace: A recorded trace.
        saved: Pairs of a slot and the step at which it was saved.
    """
    if not saved:
        return 0
    reruns = _FromStart(trace, saved)
    places, waiting = reruns.places, reruns.waiting
    found = [-1] * len(places)

    def most(k: int) -> int:
        if found[k] < 0:
            found[k] = reruns.most(places[k])
        return found[k] + waiting[k]

    best = max(most(0), most(len(places) - 1))
    stack = [(0, len(places) - 1)]
    while stack:
        low, high = stack.pop()
        if high - low < 2:
            continue
        inner = max(waiting[low + 1 : high])
        if found[high] + inner <= best:
            continue
        if found[low] == found[high]:
            best = max(best, found[high] + inner)
            continue
        middle = (low + high) // 2
        best = max(best, most(middle))
        stack += [(low, middle), (middle, high)]
    return best


class _FromStart:
    """Runs of a program from its start to a position.

    Attributes:
        places: Positions at which something that was saved has its value.
        waiting: At each, the most bytes of cotangents that wait where it was saved.
    """

    def __init__(self, trace: Trace, saved: Sequence[tuple[int, int]]) -> None:
        self._columns = columns = Columns.of(trace)
        slots, steps = np.array(saved, dtype=np.int64).T
        # A slot that was saved before it had a value gets it from a later step.
        places = np.maximum(steps, columns.made[slots] + 1)
        order = np.argsort(places, kind="stable")
        self._slots, self._until = slots[order], places[order] - 1
        most: dict[int, int] = {}
        for place, step in zip(places.tolist(), steps.tolist(), strict=True):
            most[place] = max(most.get(place, 0), columns.waiting_at(step))
        self.places = sorted(most)
        self.waiting = [most[place] for place in self.places]

    def most(self, place: int) -> int:
        """The most bytes at once, of all that is made before a position."""
        steps: Any = np.arange(place)
        rerun = Rerun(self._columns, steps)
        count = int(np.searchsorted(self._until, place))
        until: Any = np.full(len(self._columns.nbytes), -1)
        until[self._slots[:count]] = self._until[:count]
        wanted = self._slots[self._slots < len(rerun.first)]
        return rerun.peak(wanted, until[wanted])

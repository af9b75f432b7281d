"""Items of a trace: steps, the snapshots between them, and which step saved what.

Autograd saves operands before an operator runs, at its own step, and results after
it, at the next one. A formula that reads both (a recurrent layer, a normalisation)
would ask for values of two steps, and where these are in different stages each would be
computed again for the other: an LSTM of six layers ran 3.4 forwards again where its
plan said half of one. So what is saved beside operands is placed at the step that made
it.

A result that the next operator reads may have been saved as its operand instead: only
if it was saved more often than it is read, the first times were as a result. A kernel
with a workspace saves all of its results.
"""

from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple

from retape.engines.eager.trace._signature import Signature


class Step(NamedTuple):
    """One operator: a signature, the slots read, the first slot made, overwrites."""

    signature: Signature
    reads: tuple[int, ...]
    first: int
    writes: tuple[tuple[int, int], ...]


class Snapshot:
    """Slots made before `position` and read after it, until the next snapshot.

    `saved` counts the bytes that autograd had saved by then, since the start; `tier` is
    where the snapshot goes if the run has a store.
    """

    __slots__ = ("position", "saved", "slots", "tier")

    def __init__(
        self, position: int, slots: set[int], saved: int, tier: str = "memory"
    ) -> None:
        self.position = position
        self.slots = slots
        self.saved = saved
        self.tier = tier


def made_by(step: Step) -> range:
    """The slots that a step makes: its new storages first, then its overwrites."""
    made = len(step.signature.outputs) + len(step.writes)
    return range(step.first, step.first + made)


def steps_making(
    wanted: Iterable[int],
    there: Container[int],
    producer: Sequence[int],
    reads: Callable[[int], Iterable[int]],
    floor: int = 0,
) -> set[int]:
    """The steps that have to run for some slots.

    Args:
        wanted: The slots.
        there: Those that nothing has to run for.
        producer: By slot, the step that makes it; -1 if none does.
        reads: Tells the slots that a step reads.
        floor: The first step that may run.

    Examples:
        A chain `y = f(g(x))` of which nothing is held needs both steps for `y`, and
        only `f` if the result of `g` is held.

        >>> steps_making([2], {}, [-1, 0, 1], lambda step: (step,))
        {0, 1}
        >>> steps_making([2], {1}, [-1, 0, 1], lambda step: (step,))
        {1}
    """
    found: set[int] = set()
    stack = [slot for slot in wanted if slot not in there]
    while stack:
        step = producer[stack.pop()]
        if step >= floor and step not in found:
            found.add(step)
            stack += [slot for slot in reads(step) if slot not in there]
    return found


def places_of(
    steps: Sequence[Step],
    producer: Sequence[int],
    handle_steps: Sequence[int],
    slots: Sequence[int],
) -> list[int]:
    """For each saved tensor, the step whose formula reads it; never decreasing.

    Args:
        steps, producer: Of the trace.
        handle_steps: For each saved tensor, how many steps there were then.
        slots: The slots that they stand for.
    """
    places = list(handle_steps)
    number, count = 0, len(places)
    while number < count:
        step = handle_steps[number]
        end = bisect_right(handle_steps, step, number)
        beside_operands = number and handle_steps[number - 1] == step - 1
        if beside_operands and producer[slots[number]] == step - 1:
            results = _results(steps, producer, step, slots[number:end])
            places[number : number + results] = [step - 1] * results
        number = end
    return places


def _results(
    steps: Sequence[Step], producer: Sequence[int], step: int, slots: Sequence[int]
) -> int:
    """How many of the tensors saved at a position were results of the step before."""
    scratch = steps[step - 1].signature.kind.scratch
    reads = steps[step].reads if step < len(steps) else ()
    for found, slot in enumerate(slots):
        if producer[slot] != step - 1:
            return found
        again = slot in slots[:found] if scratch else False
        if again or not scratch and slots[found:].count(slot) <= reads.count(slot):
            return found
    return len(slots)

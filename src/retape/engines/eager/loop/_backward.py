"""The backward of a loop: its calls again, as a machine of the driver.

Between two snapshots of the forward the calls are reversed by the binomial schedule.
How long its stages are is a choice: a long one has a larger tape, and what that leaves
is for snapshots. The one of fewest advances is taken.

Exactness to the bit needs one thing beside the same operators: sums of cotangents must
be formed in the same order as in one graph. So a sum that a later stage began is handed
to the next as the first term, as a cotangent of the leaf itself.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from retape._errors import UnsupportedError
from retape.driver._loop import Run
from retape.engines.eager._wrapper_tensors import writes_of
from retape.engines.eager.loop._calls import (
    ONE_CALL,
    Call,
    Calls,
    LoopSnapshot,
    Slot,
    overwritten,
)
from retape.engines.eager.trace._random_state import RandomStates
from retape.engines.eager.trace._report import Tally
from retape.schedule import Schedule
from retape.storage._memory import MemoryStore

# Not all calls of one function save the same: a stage may take a third more.
_UNEVEN = 4 / 3
_COUNTED = "_retape_saved"
# So many calls in a row of known functions end a look at what calls save.
_SEEN = 16

Cotangents = dict[int, Tensor]


class LoopSweep:
    """Goes back through the calls of one block, once: a machine of the driver.

    Its steps are the calls from the last snapshot to where the backward is, its
    capsules snapshots. Cotangents go by slot and are changed in place.
    """

    def __init__(self, calls: Calls, tally: Tally) -> None:
        self.calls, self._tally = calls, tally
        self._tapes = Tapes(calls)
        self._random = RandomStates()
        self._aliases: dict[int, Tensor] = {}
        self._position = len(calls.calls)
        self._cotangents: Cotangents | None = None

    def run(self, cotangents: Cotangents) -> Cotangents:
        """Cotangents of what the program brought along."""
        if self._cotangents is not None:
            raise UnsupportedError(
                "a block under `recompute(mode='loop')` was reversed twice "
                "(`retain_graph`, or two losses of one block). Leave `mode` out."
            )
        if vars(torch._C)["_functorch"].peek_interpreter_stack() is not None:
            raise UnsupportedError(
                "a block under `recompute(mode='loop')` was reversed inside of a "
                "transform (`is_grads_batched=True`, or `vmap` around a backward), "
                "which its calls would be part of. Leave `mode` out."
            )
        self._cotangents, calls = cotangents, self.calls
        with self._random:
            while self._position and cotangents:
                while calls.snapshots[-1].position >= self._position:
                    calls.snapshots.pop()
                schedule = self._schedule()
                driven = Run(self, MemoryStore[LoopSnapshot]())
                driven.rest = iter(schedule)
                driven.go()
                self._tally.planted += max(0, driven.report.stores - 1)
        calls.snapshots = [LoopSnapshot(0, {})]
        self._aliases.clear()
        found = {s: c for s, c in cotangents.items() if s in calls.foreign}
        cotangents.clear()
        return found

    # -- what the driver asks ---------------------------------------------------

    def length(self) -> int:
        """The number of calls."""
        return self._position - self.start().position

    def start(self) -> LoopSnapshot:
        """The snapshot at the first one."""
        return self.calls.snapshots[-1]

    def nbytes(self, capsule: LoopSnapshot) -> int:
        """The bytes of a snapshot."""
        return sum(self.calls.nbytes[slot] for slot in capsule.values)

    def advance(self, capsule: LoopSnapshot, steps: int) -> tuple[LoopSnapshot, int]:
        """Run some calls, and take a snapshot of what the others read."""
        cut, producer = capsule.position + steps, self.calls.producer
        reads = self.calls.reads[cut : self._position]
        kept = {slot for each in reads for slot in each if 0 <= producer[slot] < cut}
        values = dict(capsule.values)
        with torch.no_grad():
            self._run_calls(capsule.position, cut, values, kept)
        return LoopSnapshot(cut, {slot: values[slot] for slot in kept}), steps

    def reverse(self, capsule: LoopSnapshot, steps: int, _: Any) -> Cotangents:
        """Run some calls with a graph, and go back through it."""
        calls, start, cotangents = self.calls, capsule.position, self._cotangents
        assert cotangents is not None
        values = self._leaves(capsule)
        leaves = {slot: t for slot, t in values.items() if calls.needs[slot]}
        with torch.enable_grad():
            self._run_calls(start, start + steps, values, set(cotangents))
        for slot, first in calls.first_read.items():
            if first < start + steps and calls.last_read[slot] >= start:
                leaves[slot] = self._alias(slot)
        _pull_back(cotangents, values, leaves)
        self._tally.stages += 1
        self._position = start
        return cotangents

    # -- how the schedule is chosen ---------------------------------------------

    def _schedule(self) -> Schedule:
        """The schedule of fewest advances back to the last snapshot.

        First those snapshots are given up that a single stage spans.
        """
        calls, length = self.calls, self.length()
        if calls.memory is None:
            slots = (calls.most or 1) - len(calls.snapshots) + 1
            stages = -(-length // calls.stage)
            # Of equal stages fewer calls are run again than with a short one at last.
            return Schedule(length, max(1, slots), -(-length // stages))
        room = self._room()
        if not self._fits(-1, room):
            self._look()
        while len(calls.snapshots) > 1 and self._fits(-2, room):
            calls.give_up(-1)
        length, position = self.length(), self._position
        if self._fits(-1, room):
            return Schedule(length, 1, length)
        first = position - length
        width = max(1, calls.widest(first, position))
        # The cotangents of what crosses a position wait there.
        room = self._room() - width
        beside = self._tapes.going_back(first, position)
        tape = self._tapes.between(first, position) / length
        found: list[Schedule] = []
        for stages in (1 << k for k in range(1, length.bit_length() + 1)):
            stage = -(-length // stages)
            taken = stage * tape + beside
            if stage == 1:  # the least budget has room for it
                taken = min(taken, calls.one_call())
            if stage == 1 or taken <= room:
                slots = 1 + max(0, int((room - taken) // width))
                found.append(Schedule(length, slots, stage))
        return min(found, key=lambda each: each.counts().advances)

    def _fits(self, snapshot: int, room: float) -> bool:
        """Whether all from a snapshot on may be one stage."""
        some = self.calls.snapshots[snapshot].position, self._position
        taken = self._tapes.between(*some) + self._tapes.going_back(*some)
        return taken <= room

    def _room(self) -> float:
        """Bytes for a tape and for the snapshots that are planted."""
        calls = self.calls
        assert calls.memory is not None
        return calls.memory - calls.sum_bytes() - calls.snapshot_bytes()

    def _look(self) -> None:
        """See what some calls save whose functions have not been seen yet."""
        start, stop, tapes = self.start().position, self._position, self._tapes
        values = self._leaves(self.start())
        counter = _SavedBytes([*self.calls.foreign.values(), *values.values()])
        index = last_new = start
        with torch.enable_grad(), counter:
            while index < stop and index <= last_new + _SEEN:
                if tapes.knows(start, stop):
                    break
                before = counter.nbytes
                self._run_calls(index, index + 1, values, set())
                if tapes.saved(index, counter.nbytes - before):
                    last_new = index
                index += 1

    # -- how calls are run ------------------------------------------------------

    def _leaves(self, snapshot: LoopSnapshot) -> dict[int, Tensor]:
        """The values of a snapshot, for a graph that begins with them."""
        needs = self.calls.needs
        return {
            slot: tensor.detach().requires_grad_() if needs[slot] else tensor
            for slot, tensor in snapshot.values.items()
        }

    def _alias(self, slot: int) -> Tensor:
        """A tensor that the program brought along, as a leaf of its own."""
        alias = self._aliases.get(slot)
        if alias is None:
            calls = self.calls
            tensor = calls.foreign[slot]
            if writes_of(tensor) != calls.versions[slot]:
                raise overwritten(tensor)
            alias = tensor.detach().requires_grad_(calls.needs[slot])
            self._aliases[slot] = alias
        return alias

    def _run_calls(
        self, first: int, last: int, values: dict[int, Tensor], kept: set[int]
    ) -> None:
        """Run some calls again, with a graph if gradient mode is on."""
        self._tally.recomputed += last - first
        taped = torch.is_grad_enabled()
        for index in range(first, last):
            torch._C._set_grad_enabled(taped and self.calls.calls[index].grad)
            try:
                self._call(index, values)
            finally:
                torch._C._set_grad_enabled(taped)
            self._drop(index, values, kept)

    def _call(self, index: int, values: dict[int, Tensor]) -> None:
        call = self.calls.calls[index]
        if call.random is not None:
            self._random.set_all(call.random)
        result = self._result(call, values)
        slot, single = self.calls.makes[index]
        if single:
            values[slot] = result
        else:
            values.update(enumerate(result, slot))

    def _result(self, call: Call, values: dict[int, Tensor]) -> Any:
        args = [
            self._value(item, values) if item.__class__ in _HOLDERS else item
            for item in call.args
        ]
        if call.kwargs is None:
            return call.function(*args)
        named = {name: self._value(item, values) for name, item in call.kwargs.items()}
        return call.function(*args, **named)

    def _value(self, item: Any, values: dict[int, Tensor]) -> Any:
        if item.__class__ is Slot:
            tensor = values.get(item)
            return self._alias(item) if tensor is None else tensor
        if item.__class__ is list or item.__class__ is tuple:
            return item.__class__(self._value(part, values) for part in item)
        return item

    def _drop(self, index: int, values: dict[int, Tensor], kept: set[int]) -> None:
        """Let go of what is read here for the last time."""
        last = self.calls.last_read
        for slot in self.calls.reads[index]:
            if last[slot] == index and slot not in kept:
                values.pop(slot, None)


_HOLDERS = (Slot, list, tuple)


def _pull_back(
    cotangents: Cotangents, values: dict[int, Tensor], leaves: dict[int, Tensor]
) -> None:
    ends = {s: values[s] for s in cotangents if s in values and s not in leaves}
    ends = {slot: tensor for slot, tensor in ends.items() if tensor.requires_grad}
    begun = {slot: leaf for slot, leaf in leaves.items() if slot in cotangents}
    roots = {**begun, **ends}
    values.clear()
    for slot in ends:
        values[slot] = cotangents.pop(slot)
    seeds = [cotangents.get(s, values.get(s)) for s in roots]
    values.clear()
    if ends:
        found = torch.autograd.grad(
            list(roots.values()), list(leaves.values()), seeds, allow_unused=True
        )
        for slot, cotangent in zip(leaves, found, strict=True):
            if cotangent is not None:
                cotangents[slot] = cotangent


class Tapes:
    """What tapes take: by function, as a multiple of what its calls make."""

    def __init__(self, calls: Calls) -> None:
        numbers: dict[Any, int] = {}
        functions = [numbers.setdefault(c.function, len(numbers)) for c in calls.calls]
        self._functions = np.array(functions, int)
        made = np.array(calls.producer, int)
        some = made >= 0
        sizes = np.array(calls.nbytes)[some]
        self._made = np.bincount(made[some], sizes, len(functions))
        self._multiple = np.zeros(len(numbers))
        self._known = np.zeros(len(numbers), bool)

    def between(self, first: int, stop: int) -> float:
        """The bytes that the tape of some calls is reckoned at."""
        return float(self._of_calls(first, stop).sum())

    def going_back(self, first: int, stop: int) -> float:
        """The bytes that going back through any one of some calls makes.

        Those are cotangents of what it has saved and of what it has made, of which two
        are there at once.
        """
        saved, made = self._of_calls(first, stop), self._made[first:stop]
        return float((saved + 2 * made).max())

    def _of_calls(self, first: int, stop: int) -> Any:
        multiple = np.where(self._known, _UNEVEN * self._multiple, ONE_CALL)
        return multiple[self._functions[first:stop]] * self._made[first:stop]

    def knows(self, first: int, stop: int) -> bool:
        """Whether the functions of all of some calls have been seen."""
        return bool(self._known[self._functions[first:stop]].all())

    def saved(self, index: int, nbytes: int) -> bool:
        """Note what a call has saved; whether its function was not known before."""
        function, made = self._functions[index], max(1.0, self._made[index])
        is_new = not self._known[function]
        self._known[function] = True
        self._multiple[function] = max(self._multiple[function], nbytes / made)
        return is_new


class _SavedBytes(torch.autograd.graph.saved_tensors_hooks):
    """Counts the bytes that a graph would save, each storage once, and saves nothing.

    Args:
        there: Tensors that are there anyway.

    Attributes:
        nbytes: The bytes counted so far.
    """

    def __init__(self, there: Iterable[Tensor]) -> None:
        super().__init__(self._count, lambda _: torch.empty(0))
        self.nbytes, self._mark = 0, object()
        for tensor in there:
            self._count(tensor)
        self.nbytes = 0

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if getattr(storage, _COUNTED, None) is not self._mark:
            # As an attribute of the storage, of which there is another one later on.
            setattr(storage, _COUNTED, self._mark)
            self.nbytes += storage.nbytes()

"""The backward of a loop: its calls again, stage by stage, with a graph.

Exactness to the bit needs one thing beside the same operators: sums of cotangents must
be formed in the same order as in one graph. So a sum that a later stage began is handed
to the next as the first term, as a cotangent of the leaf itself.
"""

import contextlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from retape.engines.eager._errors import UnsupportedError
from retape.engines.eager.loop._calls import (
    Call,
    Calls,
    LoopSnapshot,
    Slot,
    overwritten,
)
from retape.engines.eager.trace._random_state import RandomStates
from retape.engines.eager.trace._report import Tally
from retape.schedule._split import binomial_split

# Of the bytes that snapshots leave, what a stage's graph may take.
_STAGE_SHARE = 0.75


class LoopSweep:
    """Goes back through the calls of one block, once."""

    def __init__(self, calls: Calls, tally: Tally) -> None:
        self._calls = calls
        self._tally = tally
        self._cotangents: dict[int, Tensor] = {}
        self._per_call = 0.0
        # Calls that a stage may have, and the most that one about as long has had.
        self._allowed = self._tried = 0
        # Where the storages are that the program brought along: they cost nothing more.
        self._brought = frozenset(
            tensor.untyped_storage().data_ptr() for tensor in calls.foreign.values()
        )
        self._done = False
        self._aliases: dict[int, Tensor] = {}

    def run(self, cotangents: dict[int, Tensor]) -> dict[int, Tensor]:
        """Cotangents of what the program brought along."""
        if self._done:
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
        self._done = True
        self._cotangents = cotangents
        calls, position = self._calls, len(self._calls.calls)
        with RandomStates() as random:
            while position and self._cotangents:
                nearest = calls.snapshots[-1]
                if nearest.position >= position:
                    calls.snapshots.pop()
                    continue
                nearest = self._lengthened(position)
                cut = self._next_cut(nearest, position)
                if cut is None:
                    self._tape(nearest, position, random)
                    position = nearest.position
                else:
                    self._advance(nearest, cut, position, random)
        found = {s: c for s, c in self._cotangents.items() if s in calls.foreign}
        calls.snapshots = [LoopSnapshot(0, {})]
        self._aliases.clear()
        return found

    def _lengthened(self, position: int) -> LoopSnapshot:
        """The last snapshot, once those are given up that a stage can do without."""
        calls = self._calls
        if calls.memory is not None:
            room = calls.memory - calls.sum_bytes() - calls.snapshot_bytes()
            first = position - self._stage_length(room)
            while len(calls.snapshots) > 1 and calls.snapshots[-2].position >= first:
                calls.give_up_last()
        return calls.snapshots[-1]

    def _next_cut(self, start: LoopSnapshot, position: int) -> int | None:
        """The place of a new snapshot; `None` if a stage can begin at the last one."""
        calls = self._calls
        length = position - start.position
        if calls.memory is None:
            stage = calls.stage
            slots = max(1, (calls.most or 1) - len(calls.snapshots) + 1)
        else:
            width = max(1, sum(calls.nbytes[slot] for slot in start.values))
            room = calls.memory - calls.sum_bytes() - calls.snapshot_bytes()
            stage = self._stage_length(room)
            # A stage takes its tape, and what going back through it makes.
            taken = stage * self._per_call + calls.one_call()
            slots = 1 + max(0, int((room - taken) / width))
        self._allowed, units = stage, -(-length // stage)
        if units <= 1:
            return None
        # Of equal stages fewer calls are run again than with a short one at the end.
        stage = -(-length // units)
        if slots == 1:
            return start.position + (units - 1) * stage
        return start.position + binomial_split(units, min(slots, units)) * stage

    def _stage_length(self, room: int) -> int:
        if not self._per_call:
            return self._calls.first_stage(room)
        # What is known of a call comes from few of them: a stage doubles, and no more.
        fitting = int(_STAGE_SHARE * room / self._per_call)
        return max(1, min(fitting, 2 * self._tried))

    def _crossing(self, cut: int, position: int) -> set[int]:
        """Slots made before `cut` that the rest reads, or that have a cotangent."""
        producer = self._calls.producer
        wanted = {s for reads in self._calls.reads[cut:position] for s in reads}
        wanted.update(self._cotangents)
        return {slot for slot in wanted if 0 <= producer[slot] < cut}

    def _advance(
        self, start: LoopSnapshot, cut: int, position: int, random: RandomStates
    ) -> None:
        """Plant a snapshot at `cut`."""
        kept = self._crossing(cut, position)
        values = dict(start.values)
        with torch.no_grad():
            self._run_calls(start.position, cut, values, kept, random)
        # A result of the block from before the start has a cotangent that waits there.
        planted = {slot: values[slot] for slot in kept if slot in values}
        self._calls.snapshots.append(LoopSnapshot(cut, planted))
        self._tally.planted += 1
        self._tally.recomputed += cut - start.position

    def _tape(self, start: LoopSnapshot, position: int, random: RandomStates) -> None:
        """Run the calls up to `position` with a graph, and go back through it."""
        calls, cotangents = self._calls, self._cotangents
        values = {
            slot: tensor.detach().requires_grad_() if calls.needs[slot] else tensor
            for slot, tensor in start.values.items()
        }
        leaves = {slot: t for slot, t in values.items() if calls.needs[slot]}
        counter = _SavedBytes(self._brought)
        kept = set(cotangents)
        with (
            torch.enable_grad(),
            counter if self._measures() else contextlib.nullcontext(),
        ):
            self._run_calls(start.position, position, values, kept, random)
        if counter.nbytes:
            self._per_call = counter.nbytes / (position - start.position)
        if 2 * (position - start.position) >= self._allowed:
            self._tried = max(self._tried, self._allowed)
        for slot, first in calls.first_read.items():
            if first < position and calls.last_read[slot] >= start.position:
                leaves[slot] = self._alias(slot)
        self._pull_back(values, leaves)
        self._tally.stages += 1
        self._tally.recomputed += position - start.position

    def _measures(self) -> bool:
        """Whether to count what this stage saves: the first ones, then every eighth."""
        return self._tally.stages < 8 or self._tally.stages % 8 == 0

    def _pull_back(self, values: dict[int, Tensor], leaves: dict[int, Tensor]) -> None:
        cotangents = self._cotangents
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

    def _alias(self, slot: int) -> Tensor:
        """A tensor that the program brought along, as a leaf of its own."""
        alias = self._aliases.get(slot)
        if alias is None:
            calls = self._calls
            tensor = calls.foreign[slot]
            if tensor._version != calls.versions[slot]:
                raise overwritten(tensor)
            alias = tensor.detach().requires_grad_(calls.needs[slot])
            self._aliases[slot] = alias
        return alias

    def _run_calls(
        self, first: int, last: int, values: dict[int, Tensor], kept: set[int],
        random: RandomStates,
    ) -> None:  # fmt: skip
        """Run some calls again, with a graph if gradient mode is on."""
        taped = torch.is_grad_enabled()
        for index in range(first, last):
            torch._C._set_grad_enabled(taped and self._calls.calls[index].grad)
            try:
                self._call(index, values, random)
            finally:
                torch._C._set_grad_enabled(taped)
            self._drop(index, values, kept)

    def _call(
        self, index: int, values: dict[int, Tensor], random: RandomStates
    ) -> None:
        call = self._calls.calls[index]
        if call.random is not None:
            random.set_all(call.random)
        result = self._result(call, values)
        slot, single = self._calls.makes[index]
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

    def _drop(self, index: int, values: dict[int, Tensor], kept: Iterable[int]) -> None:
        """Let go of what is read here for the last time."""
        last = self._calls.last_read
        for slot in self._calls.reads[index]:
            if last[slot] == index and slot not in kept:
                values.pop(slot, None)


_HOLDERS = (Slot, list, tuple)


class _SavedBytes(torch.autograd.graph.saved_tensors_hooks):
    """Counts the bytes that a graph saves, each storage once.

    Attributes:
        nbytes: The bytes counted so far.
    """

    def __init__(self, brought: frozenset[int]) -> None:
        super().__init__(self._pack, lambda tensor: tensor)
        self.nbytes, self._seen = 0, set(brought)

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self.nbytes += storage.nbytes()
        return tensor


class LoopNode(torch.autograd.Function):
    """The node that stands for a whole block."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        """Tie the tensors that leave the block to this node."""
        ctx.sweep, ctx.slots, ctx.foreign, leaving = args[:4]
        ctx.set_materialize_grads(False)
        return leaving

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
        """Cotangents of what the program brought along."""
        if torch.is_grad_enabled():
            raise UnsupportedError(
                "a block under `recompute(mode='loop')` was reversed with "
                "`create_graph=True`, but its backward has no graph. Leave `mode` out."
            )
        given = {
            slot: cotangent
            for slot, cotangent in zip(ctx.slots, cotangents, strict=True)
            if cotangent is not None
        }
        found = ctx.sweep.run(given)
        return (None, None, None, None, *(found.get(slot) for slot in ctx.foreign))

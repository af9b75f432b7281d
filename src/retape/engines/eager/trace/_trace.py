"""The trace of a run: slots, and what is held of their values.

Glossary. A *slot* is one version of one storage: a storage gets a new slot whenever an
operator overwrites it. A slot is *foreign* if no operator of the trace made it (inputs,
parameters). `producer[slot]` is the step that made it, -1 if foreign. A *step* is one
recorded operator; views are none, because a tensor is a slot and a geometry. The trace
is *owner* of the buffers hung on storages; other traces see them as foreign. Of slots
that no step made `gradients` has those that get a gradient. `received` are the slots
held for good though they are not foreign: what other processes gave, and what was made
before the present `section` and is read in it. `kept_bytes` are those kept for good:
these, states of generators, and copies of foreign values that the program has
overwritten; `pinned_bytes` are those that a policy keeps. `exposed` has what was seen
of foreign slots in memory that NumPy, say, may write without PyTorch's knowledge, or of
values that the program has handed out (`shared` has their storages); their buffers are
`uninitialised`, so that each read goes the long way. `gapped` slots have parts that no
kernel has written.
"""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch import UntypedStorage as Storage

from retape.engines.eager._collectives import InFlight
from retape.engines.eager._home_streams import HomeStreams
from retape.engines.eager.trace._fingerprint import Exposure, fingerprint
from retape.engines.eager.trace._geometry import (
    Geometries,
    Geometry,
    below_autograd,
    disjoint,
    refuse_proxies,
    tensor_on,
)
from retape.engines.eager.trace._holdings import TAG, Buffer, Counter, Holdings, Tail
from retape.engines.eager.trace._signature import Signature
from retape.engines.eager.trace._step import (
    Input,
    InputGradient,
    Received,
    Snapshot,
    Step,
    is_exposed,
    without_history,
)


class Trace:
    """Operations in order, and what is held of their values."""

    # What compiled code reads at each operator has a fixed place.
    __slots__ = (
        "__dict__", "__weakref__", "held", "latest", "limit", "moved", "next_cut",
        "opened", "received", "saved", "section", "tail",
    )  # fmt: skip

    def __init__(self) -> None:
        self.owner = object()
        self.counter = Counter()
        self.geometries = Geometries()
        self.signatures: dict[Any, Signature] = {}
        self.columns: Any = None  # of the record, when an analysis has asked for them
        self.steps: list[Step] = []
        self.producer: list[int] = []
        self.nbytes: list[int] = []
        self._sizes: dict[int, int] = {}
        self.last_read: list[int] = []
        self.roots: list[Geometry] = []
        self.foreign: dict[int, Input] = {}
        self.gradients: dict[int, InputGradient] = {}
        self.random: dict[int, tuple[torch.Generator, Tensor]] = {}
        self.held = Holdings()
        self.opened = Snapshot(0, set(), 0)
        self.snapshots = [self.opened]
        self.tail = Tail()
        self.prints: dict[int, int] = {}
        self.verify = self.opaque = self.without_values = False
        self.warned = False
        self.on_host = True  # tensors are in the memory that the record is in
        self.streams = HomeStreams()
        self.keep: Callable[[Any], bool] | None = None
        self.largest = 0
        self.saved = 0
        self.moved: dict[int, int] = {}
        self.received: dict[int, Received] = {}
        self.exposed: dict[int, Exposure] = {}
        self.shared: set[int] = set()
        self.gapped: set[int] = set()
        self.section = 0
        self.in_flight = InFlight()
        self.kept_bytes = self.pinned_bytes = 0
        self.latest: Signature | None = None
        self.memory: float = float("inf")
        self.limit: float = float("inf")
        self.next_cut: float = float("inf")

    def new_slot(self, producer: int, nbytes: int, root: Geometry) -> int:
        """A new slot, made by step `producer`."""
        slot = len(self.producer)
        self.producer.append(producer)
        self.nbytes.append(self._sizes.setdefault(nbytes, nbytes))
        self.last_read.append(-1)
        self.roots.append(root)
        return slot

    def adopt(self, tensor: Tensor, storage: Storage) -> Buffer:
        """Make the storage of `tensor`, which no step made, a foreign slot."""
        nbytes = storage.nbytes()
        slot = self.new_slot(-1, nbytes, self.geometries.of(tensor))
        version = -1 if tensor.is_inference() else tensor._version
        self.foreign[slot] = Input(without_history(tensor), version, nbytes, storage)
        if tensor.requires_grad or (self.opaque and tensor.is_floating_point()):
            whole = tensor if tensor._base is None else tensor._base
            lies_close = not whole.is_nested and whole.is_contiguous()
            self._gets_gradient(slot, whole if lies_close else None)
        self.on_host &= tensor.device.type in ("cpu", "meta")
        buffer = Buffer(self.owner, slot, 0, self.counter)
        setattr(storage, TAG, buffer)
        handed_out = bool(self.shared) and storage._cdata in self.shared
        if not self.without_values and (handed_out or is_exposed(tensor, storage)):
            self.exposed[slot] = Exposure()
            self.exposed[slot].agrees(storage, self.geometries.of(tensor))
            buffer.uninitialised = True
        if self.verify and storage.device.type != "meta":
            self.prints[slot] = fingerprint(storage)
        return buffer

    def buffer_of(self, tensor: Tensor) -> Buffer:
        """The note on the storage of a tensor, which is foreign if it has none."""
        storage = tensor.untyped_storage()
        buffer = getattr(storage, TAG, None)
        if buffer is None or buffer.owner is not self.owner:
            return self.adopt(tensor, storage)
        return buffer

    def _gets_gradient(self, slot: int, whole: Tensor | None) -> None:
        """A slot that no step made is about to be read, and gets a gradient."""
        geometry = None if whole is None else self.geometries.of(whole)
        self.gradients[slot] = InputGradient(len(self.steps), geometry)

    def sum_bytes(self) -> int:
        """The bytes of the cotangents that are sums: of foreign slots read twice.

        Autograd holds such a sum from the last read back to the first; of those whose
        reads lie apart it holds one at a time.
        """
        change: dict[int, int] = {}
        for slot, gradient in self.gradients.items():
            first, last = gradient.first_read, self.last_read[slot]
            nbytes = self.nbytes[slot]
            if first < last:
                change[first] = change.get(first, 0) + nbytes
                change[last + 1] = change.get(last + 1, 0) - nbytes
        return max(accumulate(change[place] for place in sorted(change)), default=0)

    def state_bytes(self) -> int:
        """The bytes of the states that generators have while steps are run again.

        They are put aside then, one of each generator.
        """
        sizes = {each: state.nbytes for each, state in self.random.values()}
        return sum(sizes.values())

    def note_sums_apart(self) -> None:
        """Note in `apart`, by its last read, whose first sum is a tensor of its own.

        Autograd adds in place to a cotangent that shares its storage with nobody. That
        of what was read as a view does: it is a view of what the formula made. So does
        what a product makes for a matrix that is not contiguous. For other operators
        that share (`add`), what they made is as large, and its cotangent is counted.
        """
        for slot, gradient in self.gradients.items():
            last = self.last_read[slot]
            if gradient.first_read < last < len(self.steps):
                step, whole = self.steps[last], gradient.whole
                seen = zip(step.reads, step.signature.geometries, strict=True)
                if any(s == slot and geometry is not whole for s, geometry in seen):
                    gradient.apart = last

    def look_again(self, buffer: Buffer, tensor: Tensor) -> None:
        """Before a read of memory that others may have written, or that nobody has."""
        slot, storage = buffer.slot, tensor.untyped_storage()
        seen = self.geometries.of(tensor)
        if slot not in self.exposed:
            self.pin(buffer, tensor)
        elif not self.exposed[slot].agrees(storage, seen):
            delattr(storage, TAG)  # another value, and the one before is lost
            buffer.slot = self.adopt(tensor, storage).slot
            self.exposed.setdefault(buffer.slot, Exposure()).agrees(storage, seen)
            setattr(storage, TAG, buffer)

    def after_write(self, buffer: Buffer, old: int, tensor: Tensor) -> None:
        """The program has written a value that others may write as well."""
        storage = tensor.untyped_storage()
        if old in self.exposed:
            seen = self.geometries.of(tensor)
            self.exposed[buffer.slot] = self.exposed[old].overwritten(storage, seen)
            buffer.uninitialised = True
        elif self.shared:
            self.look_at(storage)

    def expose(self, storage: Storage) -> None:
        """From now on others may write a storage without an operator."""
        self.shared.add(storage._cdata)
        self.look_at(storage)

    def look_at(self, storage: Storage) -> None:
        """Have each read of a value look whether others have changed it."""
        buffer = getattr(storage, TAG, None)
        if buffer is None or buffer.owner is not self.owner or buffer.uninitialised:
            return  # it is not known yet, or it is looked at already
        if storage._cdata in self.shared:
            self.exposed[buffer.slot] = Exposure.of_all(storage)
            buffer.uninitialised = True

    def pin(self, buffer: Buffer, tensor: Tensor) -> None:
        """Keep the present value of a storage for good, as a foreign slot."""
        storage = tensor.untyped_storage()
        root = self.roots[buffer.slot]
        slot = self.new_slot(-1, buffer.nbytes, root)
        self._keep_copy(slot, storage, root)
        buffer.slot, buffer.uninitialised = slot, False

    def hold_for_good(self, buffer: Buffer, tensor: Tensor) -> None:
        """Give a storage a slot that cannot be recomputed and is always held.

        Handles of a slot that was saved before it had a value stand for the new one.
        """
        old, storage = buffer.slot, tensor.untyped_storage()
        slot = self.new_slot(-1, storage.nbytes(), self.roots[old])
        if self.moved.get(old) == old:
            self.moved[old] = slot
            self.drop_from_tail(old)
        self.received[slot] = Received()
        if tensor.is_floating_point() or tensor.is_complex():
            self._gets_gradient(slot, tensor if tensor.is_contiguous() else None)
        self.kept_bytes += buffer.nbytes
        self.held.hold(slot, storage)
        buffer.slot, buffer.uninitialised = slot, False

    def carry_over(self, buffer: Buffer, tensor: Tensor) -> int:
        """Hold a value of an earlier section for good; its slot in this one."""
        old = buffer.slot
        if old in self.tail.steps:
            buffer.older = (*buffer.older, old)
        self.hold_for_good(buffer, tensor)
        self.received[buffer.slot].same = old
        return buffer.slot

    def before_write(self, buffer: Buffer, tensor: Tensor) -> None:
        """Save the value that an operator is about to overwrite, where it is held."""
        slot = buffer.slot
        known = self.foreign.get(slot)
        if known is not None and known.version >= 0 and self.last_read[slot] >= 0:
            self._keep_copy(slot, tensor.untyped_storage(), self.roots[slot])
        if slot in self.tail.steps or buffer.older:
            self._leave_tail(buffer, tensor)
        received = self.received.get(slot)
        if received is not None:
            old, received.same = received.same, -1
            if old in self.held.storages and old not in self.tail.steps:
                self.hold_copy(old, tensor.untyped_storage())
            if not received.saved and self.last_read[slot] < 0:
                self.forget_received(slot)
        if slot in self.held.storages:
            self.hold_copy(slot, tensor.untyped_storage())

    def forget_received(self, slot: int) -> None:
        """Let a received value go that nothing has asked for."""
        del self.received[slot]
        self.held.release(slot)

    def separate(self, slot: int) -> None:
        """Hold a slot without sharing its storage with the program.

        A value of the tail is let go: its inputs are near. One of a snapshot is copied.
        """
        self.drop_from_tail(slot)
        shared = self.held.storages.get(slot)
        if shared is not None:
            self.hold_copy(slot, shared)

    def hold_copy(self, slot: int, storage: Storage) -> None:
        """Hold a copy of a storage in place of the one that is held for a slot."""
        self.held.storages[slot] = self._counted_copy(slot, storage)

    def _keep_copy(self, slot: int, storage: Storage, root: Geometry) -> None:
        """Make a copy of a storage the value of a foreign slot."""
        self.kept_bytes += storage.nbytes()
        copy = self._counted_copy(slot, storage)
        if self.without_values:
            self.foreign[slot] = Input(torch.empty(0), -1, 0, copy)
            return
        with below_autograd():
            tensor = tensor_on(copy, root)
        self.foreign[slot] = Input(tensor, -1, 0, tensor.untyped_storage())

    def _counted_copy(self, slot: int, storage: Storage) -> Storage:
        if self.without_values:
            copy = Storage(storage.nbytes(), device="meta")
        else:
            refuse_proxies()
            copy = storage.clone()
        buffer = Buffer(self.owner, slot, copy.nbytes(), self.counter)
        setattr(copy, TAG, buffer)
        return copy

    def forget(self, tensor: Tensor) -> None:
        """A storage was overwritten outside the record: it is foreign from now on."""
        storage = tensor.untyped_storage()
        buffer = getattr(storage, TAG, None)
        if buffer is not None and buffer.owner is self.owner:
            self.before_write(buffer, tensor)
            delattr(storage, TAG)

    def first_slot(self, position: int) -> int:
        """The first slot made at or after a step."""
        steps = self.steps
        return steps[position].first if position < len(steps) else len(self.producer)

    def add_to_tail(self, slot: int, storage: Storage, window: Geometry) -> None:
        """Hold a value that autograd saves at the present step."""
        tail = self.tail
        if slot in tail.steps:
            tail.windows[slot].append(window)
        else:
            tail.steps[slot] = len(self.steps)
            tail.windows[slot] = [window]
            tail.nbytes += self.nbytes[slot]
            self.saved += self.nbytes[slot]
            self.held.hold(slot, storage)

    def drop_from_tail(self, slot: int) -> None:
        """Let the tail's hold on a slot go, if it has one."""
        tail = self.tail
        if tail.steps.pop(slot, None) is not None:
            del tail.windows[slot]
            tail.nbytes -= self.nbytes[slot]
            if tail.partial.pop(slot, None) is None:
                self.held.release(slot)

    def _leave_tail(self, buffer: Buffer, written: Tensor) -> None:
        """A storage in the tail is overwritten: keep it only for what is not hit.

        Two slots of one storage are what `chunk` followed by in-place activations
        makes (an LSTM cell): the parts saved before stay as they were.
        """
        tail, kept = self.tail, []
        window = self.geometries.of(written)
        for slot in (*buffer.older, buffer.slot):
            if slot not in tail.steps:
                continue
            if all(disjoint(window, saved) for saved in tail.windows[slot]):
                if slot not in tail.partial:
                    tail.partial[slot] = written.untyped_storage()
                    self.held.release(slot)
                kept.append(slot)
            else:
                self.drop_from_tail(slot)
        buffer.older = tuple(kept)

    def pin_slot(self, slot: int, storage: Storage) -> None:
        """Hold a value for a policy, until nothing asks for the run any more."""
        self.pinned_bytes += self.nbytes[slot]
        self.held.hold(slot, storage)

    def needed_by_snapshot(self, slot: int, storage: Storage) -> None:
        """A value from before the open snapshot is read after it."""
        if slot not in self.opened.slots:
            self.opened.slots.add(slot)
            self.held.hold(slot, storage)

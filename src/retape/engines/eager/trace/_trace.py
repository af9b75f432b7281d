"""The trace of a run: slots, and what is held of their values.

Glossary. A *slot* is one version of one storage: a storage gets a new slot whenever an
operator overwrites it. A slot is *foreign* if no operator of the trace made it (inputs,
parameters). `producer[slot]` is the step that made it, -1 if foreign. A *step* is one
recorded operator; views are none, because a tensor is a slot and a geometry. The trace
is *owner* of the buffers hung on storages; other traces see them as foreign. `notes`
has what is out of the ordinary about a slot. `kept_bytes` are those kept for good:
of received slots, states of generators, and copies of foreign values that the program
has overwritten; `pinned_bytes` are those that a policy keeps. `shared` has storages
that the program has handed out, to NumPy, say. Buffers of exposed slots are
`uninitialised`, so that each read goes the long way.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch import UntypedStorage as Storage

from retape._errors import MutationError
from retape.engines.eager._collectives import InFlight
from retape.engines.eager._home_streams import HomeStreams
from retape.engines.eager._wrapper_tensors import writes_of
from retape.engines.eager.trace._fingerprint import (
    expose,
    fingerprint,
    watch,
    watch_shared,
)
from retape.engines.eager.trace._geometry import (
    Geometries,
    Geometry,
    below_autograd,
    disjoint,
    refuse_proxies,
    tensor_on,
)
from retape.engines.eager.trace._holdings import TAG, Buffer, Counter, Holdings, Tail
from retape.engines.eager.trace._note import (
    Input,
    Note,
    is_exposed,
    without_history,
    written_by_others,
)
from retape.engines.eager.trace._step import Signature, Snapshot, Step

_ORDINARY = Note()


class Trace:
    """Operations in order, and what is held of their values."""

    # What compiled code reads at each operator has a fixed place.
    __slots__ = (
        "__dict__", "__weakref__", "held", "latest", "limit", "next_cut", "notes",
        "opaque", "opened", "saved", "section", "shared", "tail",
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
        self.notes: dict[int, Note] = {}
        self.random: dict[int, tuple[torch.Generator, Tensor]] = {}
        self.held = Holdings()
        self.opened = Snapshot(0, set(), 0)
        self.snapshots = [self.opened]
        self.tail = Tail()
        self.verify = self.opaque = self.without_values = False
        self.warned = False
        self.on_host = True  # tensors are in the memory that the record is in
        self.streams = HomeStreams()
        self.keep: Callable[[Any], bool] | None = None
        self.largest = 0
        self.saved = 0
        self.exposed = False  # a slot has an exposure
        self.shared: set[int] = set()
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

    def note(self, slot: int) -> Note:
        """The note of a slot; a new one if it had none."""
        return self.notes.setdefault(slot, Note())

    def noted(self, slot: int) -> Note:
        """What is out of the ordinary about a slot, which may be nothing."""
        return self.notes.get(slot, _ORDINARY)

    def actual(self, slot: int) -> int:
        """The slot with the value of a saved one, which perhaps had none by then."""
        filled = self.noted(slot).filled_as
        return slot if filled is None else filled

    def actuals(self, slots: Iterable[int]) -> list[int]:
        """The same of many slots, most of which have no note."""
        notes = self.notes
        return [each if each not in notes else self.actual(each) for each in slots]

    def adopt(self, tensor: Tensor, storage: Storage) -> Buffer:
        """Make the storage of `tensor`, which no step made, a foreign slot."""
        nbytes, geometry = storage.nbytes(), self.geometries.of(tensor)
        slot = self.new_slot(-1, nbytes, geometry)
        version = writes_of(tensor)
        known = Input(without_history(tensor), version, nbytes, storage)
        note = self.notes[slot] = Note(known)
        if tensor.requires_grad or (self.opaque and tensor.is_floating_point()):
            whole = tensor if tensor._base is None else tensor._base
            lies_close = not whole.is_nested and whole.is_contiguous()
            if lies_close and whole is not tensor:
                geometry = self.geometries.of(whole)
            self._gets_gradient(note, geometry if lies_close else None)
        self.on_host = self.on_host and (tensor.is_cpu or tensor.is_meta)
        buffer = Buffer(self.owner, slot, 0, self.counter)
        buffer.version = version
        setattr(storage, TAG, buffer)
        handed_out = storage._cdata in self.shared
        if not self.without_values and (handed_out or is_exposed(tensor, storage)):
            watch(self, buffer, tensor)
        if self.verify and storage.device.type != "meta":
            note.checksum = fingerprint(storage)
        return buffer

    def buffer_of(self, tensor: Tensor) -> Buffer:
        """The note on the storage of a tensor, which is foreign if it has none."""
        storage = tensor.untyped_storage()
        return self.buffer_on(storage) or self.adopt(tensor, storage)

    def buffer_on(self, storage: Storage) -> Buffer | None:
        """The note that this trace has hung on a storage, if it has."""
        buffer = getattr(storage, TAG, None)
        return buffer if buffer is not None and buffer.owner is self.owner else None

    def _gets_gradient(self, note: Note, whole: Geometry | None) -> None:
        """A slot that no step made is about to be read, and gets a gradient."""
        note.first_read = len(self.steps)
        note.whole = whole

    def look_again(self, buffer: Buffer, tensor: Tensor) -> None:
        """Before a read of memory that others may have written, or that nobody has."""
        storage, known = tensor.untyped_storage(), self.noted(buffer.slot).exposure
        # A snapshot copies all of it.
        seen = None if self._crosses(buffer.slot) else self.geometries.of(tensor)
        if known is None:
            self.pin(buffer, tensor)
        elif not known.agrees(storage, seen):
            delattr(storage, TAG)  # another value, and the one before is lost
            buffer.slot = self.adopt(tensor, storage).slot
            watch(self, buffer, tensor)
            setattr(storage, TAG, buffer)

    def after_write(self, buffer: Buffer, old: int, tensor: Tensor) -> None:
        """The program has written into a storage, which has a new slot now."""
        storage, before = tensor.untyped_storage(), self.noted(old)
        if before.exposure is not None:
            seen = self.geometries.of(tensor)
            expose(self, buffer, before.exposure.overwritten(storage, seen))
        elif self.shared:
            watch_shared(self, storage)
        if before.gapped:
            self.note(buffer.slot).gapped = True
        if before.filled_as == old:
            before.filled_as = buffer.slot
            self.last_read[buffer.slot] = self.last_read[old]
            self.add_to_tail(buffer.slot, storage, self.geometries.of(tensor))

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
        if self.noted(old).filled_as == old:
            self.note(old).filled_as = slot
            self.drop_from_tail(old)
        note = self.note(slot)
        note.received = True
        if tensor.is_floating_point() or tensor.is_complex():
            whole = self.geometries.of(tensor) if tensor.is_contiguous() else None
            self._gets_gradient(note, whole)
        self.kept_bytes += buffer.nbytes
        self.held.hold(slot, storage)
        buffer.slot, buffer.uninitialised = slot, False
        buffer.version = writes_of(tensor)

    def carry_over(self, buffer: Buffer, tensor: Tensor) -> int:
        """Hold a value of an earlier section for good; its slot in this one."""
        old = buffer.slot
        if old in self.tail.steps:
            buffer.older = (*buffer.older, old)
        self.hold_for_good(buffer, tensor)
        self.note(buffer.slot).same = old
        return buffer.slot

    def before_write(self, buffer: Buffer, tensor: Tensor) -> None:
        """Save the value that an operator is about to overwrite, where it is held."""
        slot = buffer.slot
        note = self.noted(slot)
        known = note.input
        if known is not None and known.version >= 0 and self.last_read[slot] >= 0:
            self._keep_copy(slot, tensor.untyped_storage(), self.roots[slot])
        if slot in self.tail.steps or buffer.older:
            self._leave_tail(buffer, tensor)
        if note.received:
            old, note.same = note.same, -1
            if old in self.held.storages and old not in self.tail.steps:
                self.hold_copy(old, tensor.untyped_storage())
            if not note.saved and self.last_read[slot] < 0:
                self.forget_received(slot)
        # Of an exposed one a copy is held.
        if slot in self.held.storages and note.exposure is None:
            self.hold_copy(slot, tensor.untyped_storage())

    def forget_received(self, slot: int) -> None:
        """Let a received value go that nothing has asked for."""
        del self.notes[slot]
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
            self.note(slot).input = Input(torch.empty(0), -1, 0, copy)
            return
        with below_autograd():
            tensor = tensor_on(copy, root)
        self.note(slot).input = Input(tensor, -1, 0, tensor.untyped_storage())

    def _counted_copy(self, slot: int, storage: Storage) -> Storage:
        if self.without_values:
            copy = Storage(storage.nbytes(), device="meta")
        else:
            refuse_proxies()
            copy = storage.clone()
        buffer = Buffer(self.owner, slot, copy.nbytes(), self.counter)
        setattr(copy, TAG, buffer)
        return copy

    def written_unseen(self, buffer: Buffer, tensor: Tensor) -> None:
        """Before a read of what somebody has written without a recorded operator.

        Raises:
            MutationError: If the value that was overwritten is held.
        """
        buffer.version = tensor._version
        known = self.noted(buffer.slot).input
        if known is not None and known.version >= 0:
            return  # of an input, which is asked for its version in the backward
        if buffer.slot in self.held.storages or buffer.older:
            raise MutationError(written_by_others(tensor))
        self.pin(buffer, tensor)

    def forget(self, tensor: Tensor) -> None:
        """A storage was overwritten outside the record: it is foreign from now on."""
        storage = tensor.untyped_storage()
        buffer = self.buffer_on(storage)
        if buffer is not None:
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
        self._hold(slot, storage)

    def needed_by_snapshot(self, slot: int, storage: Storage) -> None:
        """A value from before the open snapshot is read after it."""
        if slot not in self.opened.slots:
            self.opened.slots.add(slot)
            self._hold(slot, storage)

    def _crosses(self, slot: int) -> bool:
        """Whether the open snapshot is about to hold a slot."""
        before = -1 < self.producer[slot] < self.opened.position
        return before and slot not in self.opened.slots

    def _hold(self, slot: int, storage: Storage) -> None:
        """Hold a value that steps may read again: in a copy, if others may write it."""
        first = slot not in self.held.storages
        self.held.hold(slot, storage)
        if self.noted(slot).exposure is not None and (first or slot in self.tail.steps):
            self.hold_copy(slot, storage)

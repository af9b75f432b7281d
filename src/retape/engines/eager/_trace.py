"""The record of a run: operations on slots.

Glossary. A *slot* is one version of one storage: a storage gets a new slot whenever an
operator overwrites it. A slot is *foreign* if no operator of the trace made it (inputs,
parameters). `producer[slot]` is the step that made it, -1 if foreign. A *step* is one
recorded operator; views are none, because a tensor is a slot and a geometry. The trace
is *owner* of the buffers hung on storages; other traces see them as foreign.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ._errors import UnsupportedError
from ._foreign import Foreign, without_history
from ._geometry import Geometries, Geometry, below_autograd, disjoint, tensor_on
from ._holdings import TAG, Buffer, Counter, Holdings
from ._kinds import Kind
from ._randomness import generator_for
from ._signature import Signature, constant_key
from ._verify import fingerprint

Tensor = torch.Tensor
Storage = torch.UntypedStorage


class Step(NamedTuple):
    """One operator: a signature, the slots read, the first slot made, overwrites."""

    signature: Signature
    reads: tuple[int, ...]
    first: int
    writes: tuple[tuple[int, int], ...]


_new_step = tuple.__new__


class Snapshot:
    """Slots made before `position` and read after it, until the next snapshot.

    `saved` counts the bytes that autograd had saved by then, since the start.
    """

    __slots__ = ("position", "saved", "slots")

    def __init__(self, position: int, slots: set[int], saved: int) -> None:
        self.position = position
        self.slots = slots
        self.saved = saved


class Tail:
    """Slots that autograd saved and that are still held, oldest first.

    Attributes:
        steps: The step at which each was first saved.
        windows: The geometries under which it was saved.
        partial: Storages since overwritten, but outside these geometries: good enough
            for autograd, not for a replay.
        nbytes: The sum of their sizes.
    """

    __slots__ = ("nbytes", "partial", "steps", "windows")

    def __init__(self) -> None:
        # Ordered: it is emptied from the front, where a `dict` is slow.
        self.steps: OrderedDict[int, int] = OrderedDict()
        self.windows: dict[int, list[Geometry]] = {}
        self.partial: dict[int, Storage] = {}
        self.nbytes = 0


class Trace:
    """Operations in order, and what is held of their values."""

    def __init__(self) -> None:
        self.owner = object()
        self.counter = Counter()
        self.geometries = Geometries()
        self.signatures: dict[Any, Signature] = {}
        self.steps: list[Step] = []
        self.producer: list[int] = []
        self.nbytes: list[int] = []
        self.last_read: list[int] = []
        self.roots: list[Geometry] = []
        self.foreign: dict[int, Foreign] = {}
        self.random: dict[int, tuple[torch.Generator, Tensor]] = {}
        self.held = Holdings()
        self.opened = Snapshot(0, set(), 0)
        self.snapshots = [self.opened]
        self.tail = Tail()
        self.prints: dict[int, int] = {}
        self.verify = False
        self.keep: Callable[[Any], bool] | None = None
        self.largest = 0
        self.saved = 0
        self.moved: dict[int, int] = {}
        self.memory: float = float("inf")
        self.limit: float = float("inf")
        self.next_cut: float = float("inf")

    # -- slots ------------------------------------------------------------------

    def new_slot(self, producer: int, nbytes: int, root: Geometry) -> int:
        """A new slot, made by step `producer`."""
        slot = len(self.producer)
        self.producer.append(producer)
        self.nbytes.append(nbytes)
        self.last_read.append(-1)
        self.roots.append(root)
        return slot

    def adopt(self, tensor: Tensor, storage: Storage) -> Buffer:
        """Make the storage of `tensor`, which no step made, a foreign slot."""
        nbytes = storage.nbytes()
        slot = self.new_slot(-1, nbytes, self.geometries.of(tensor))
        version = -1 if tensor.is_inference() else tensor._version
        self.foreign[slot] = Foreign(without_history(tensor), version, nbytes)
        buffer = Buffer(self.owner, slot, 0, self.counter)
        setattr(storage, TAG, buffer)
        if self.verify:
            self.prints[slot] = fingerprint(storage)
        return buffer

    def pin(self, buffer: Buffer, tensor: Tensor) -> None:
        """Keep the present value of a storage for good, as a foreign slot."""
        storage = tensor.untyped_storage()
        root = self.roots[buffer.slot]
        slot = self.new_slot(-1, buffer.nbytes, root)
        with below_autograd():
            self.foreign[slot] = Foreign(tensor_on(storage.clone(), root), -1, 0)
        buffer.slot, buffer.uninitialised = slot, False

    def before_write(self, buffer: Buffer, tensor: Tensor) -> None:
        """Save the value that an operator is about to overwrite, where it is held."""
        slot = buffer.slot
        known = self.foreign.get(slot)
        if known is not None and known.version >= 0:
            with below_autograd():
                copy = tensor_on(tensor.untyped_storage().clone(), self.roots[slot])
            self.foreign[slot] = Foreign(copy, -1, 0)
        if slot in self.tail.steps or buffer.older:
            self._leave_tail(buffer, tensor)
        if slot in self.held.storages:
            self._hold_copy(slot, tensor.untyped_storage())

    def separate(self, slot: int) -> None:
        """Hold a slot without sharing its storage with the program.

        A value of the tail is let go: its inputs are near. One of a snapshot is copied.
        """
        self.drop_from_tail(slot)
        shared = self.held.storages.get(slot)
        if shared is not None:
            self._hold_copy(slot, shared)

    def _hold_copy(self, slot: int, storage: Storage) -> None:
        copy = storage.clone()
        buffer = Buffer(self.owner, slot, copy.nbytes(), self.counter)
        setattr(copy, TAG, buffer)
        self.held.storages[slot] = copy

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

    # -- recording --------------------------------------------------------------

    def record(self, func: Any, kind: Kind, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator and add it to the trace."""
        step, grad, owner = len(self.steps), torch.is_grad_enabled(), self.owner
        key: list[Any] = [func, grad]
        reads: list[int] = []
        for position, value in enumerate(args):
            if isinstance(value, Tensor):  # `_read`, written out: the hot path
                storage = value.untyped_storage()
                buffer = getattr(storage, TAG, None)
                if buffer is None or buffer.owner is not owner or buffer.uninitialised:
                    self._read(value, position, kind, key, reads, step)
                    continue
                slot = buffer.slot
                reads.append(slot)
                key.append(self.geometries.of(value))
                self.last_read[slot] = step
                if -1 < self.producer[slot] < self.opened.position:
                    self._needed_by_snapshot(slot, storage)
            elif value.__class__ is int or value is None:
                key.append(value)
            else:
                self._scan(value, position, kind, key, reads, step)
        for name, value in kwargs.items():
            key.append(name)
            self._scan(value, name, kind, key, reads, step)
        signature = self._signature(key, func, kind, grad, args, kwargs)
        written = self._before_writes(kind, args, kwargs) if kind.writes else ()
        if kind.random:
            self._save_random_state(step, kind, args, kwargs)
        result = func(*args, **kwargs) if kwargs else func(*args)
        first = len(self.producer)
        self._make(signature, kind, result, step)
        writes = self._after_writes(written, kind, step) if written else ()
        if signature.new or self.verify or self.keep is not None:
            self._look_closer(signature, reads, first, result, written)
        if len(self.producer) > first:
            self.steps.append(_new_step(Step, (signature, tuple(reads), first, writes)))
        elif kind.random:
            self.random.pop(step, None)
        return result

    def _read(
        self, value: Tensor, position: int | str, kind: Kind,
        key: list[Any], reads: list[int], step: int,
    ) -> None:  # fmt: skip
        storage = value.untyped_storage()
        buffer = getattr(storage, TAG, None)
        if buffer is None or buffer.owner is not self.owner:
            buffer = self.adopt(value, storage)
        elif buffer.uninitialised and position not in kind.writes:
            self.pin(buffer, value)
        slot = buffer.slot
        reads.append(slot)
        key.append(self.geometries.of(value))
        self.last_read[slot] = step
        if -1 < self.producer[slot] < self.opened.position:
            self._needed_by_snapshot(slot, storage)

    def _needed_by_snapshot(self, slot: int, storage: Storage) -> None:
        """A value from before the open snapshot is read after it."""
        if slot not in self.opened.slots:
            self.opened.slots.add(slot)
            self.held.hold(slot, storage)

    def _scan(
        self, value: Any, position: int | str, kind: Kind,
        key: list[Any], reads: list[int], step: int,
    ) -> None:  # fmt: skip
        if isinstance(value, Tensor):
            self._read(value, position, kind, key, reads, step)
        elif value.__class__ is list or value.__class__ is tuple:
            key.append(("[", len(value)))
            for item in value:
                self._scan(item, position, kind, key, reads, step)
        else:
            key.append(constant_key(value))

    def _save_random_state(
        self, step: int, kind: Kind, args: Any, kwargs: dict[str, Any]
    ) -> None:
        if kind.chance is not None and kind.chance < len(args):
            if args[kind.chance] == 0.0:
                return
        generator = generator_for(args, kwargs)
        self.random[step] = (generator, generator.get_state())

    def _before_writes(
        self, kind: Kind, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> list[tuple[Buffer, Tensor]]:
        found: list[tuple[Buffer, Tensor]] = []
        for where in kind.writes:
            value = kwargs.get(where) if isinstance(where, str) else (
                args[where] if where < len(args) else None
            )  # fmt: skip
            items = value if isinstance(value, list | tuple) else (value,)
            for item in items:
                if isinstance(item, Tensor):
                    buffer = getattr(item.untyped_storage(), TAG)
                    self.before_write(buffer, item)
                    found.append((buffer, item))
        return found

    def _after_writes(
        self, written: Sequence[tuple[Buffer, Tensor]], kind: Kind, step: int
    ) -> tuple[tuple[int, int], ...]:
        writes: list[tuple[int, int]] = []
        for buffer, tensor in written:
            old, root = buffer.slot, self.roots[buffer.slot]
            # A collective may still be running: its result is pinned when first read.
            buffer.uninitialised = kind.collective
            nbytes = tensor.untyped_storage().nbytes()
            if nbytes != self.nbytes[old]:  # `resize_`, or an `out=` that was too small
                root = self.geometries.of(tensor)
                self._resized(buffer, nbytes)
            buffer.slot = self.new_slot(step, nbytes, root)
            writes.append((old, buffer.slot))
            if self.moved.get(old) == old:
                self._born(old, buffer.slot, tensor)
        return tuple(writes)

    def _born(self, old: int, new: int, tensor: Tensor) -> None:
        """A slot that autograd saved before this step gave it a value."""
        self.moved[old] = new
        self.last_read[new] = self.last_read[old]
        self.add_to_tail(new, tensor.untyped_storage(), self.geometries.of(tensor))

    def _resized(self, buffer: Buffer, nbytes: int) -> None:
        if buffer.nbytes:
            self.counter.live += nbytes - buffer.nbytes
        buffer.nbytes = nbytes

    def _signature(
        self, key: list[Any], func: Any, kind: Kind, grad: bool,
        args: Any, kwargs: dict[str, Any],
    ) -> Signature:  # fmt: skip
        try:
            found = self.signatures.get(frozen := tuple(key))
        except TypeError:  # an argument without a hash: this operator stands alone
            return Signature(func, kind, grad, args, kwargs, self.geometries.of)
        if found is None:
            found = Signature(func, kind, grad, args, kwargs, self.geometries.of)
            self.signatures[frozen] = found
        return found

    def _look_closer(
        self, signature: Signature, reads: list[int], first: int,
        result: Any, written: Sequence[tuple[Buffer, Tensor]],
    ) -> None:  # fmt: skip
        """What is done at the first call of a signature, or under `verify`."""
        if signature.new:
            self._leave_room(signature, reads, first)
        outputs = result if isinstance(result, tuple | list) else (result,)
        if self.keep is not None and self.keep(signature.func):
            self._keep_results(outputs, first)
        if not self.verify or signature.kind.uninitialised:
            return
        for tensor in (*outputs, *(tensor for _, tensor in written)):
            scratch = signature.kind.scratch and tensor.dtype is torch.uint8
            if isinstance(tensor, Tensor) and not scratch:
                storage = tensor.untyped_storage()
                self.prints[getattr(storage, TAG).slot] = fingerprint(storage)

    def _keep_results(self, outputs: Sequence[Any], first: int) -> None:
        """Hold the new storages of a result until nothing asks for the run any more."""
        for tensor in outputs:
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                slot = getattr(storage, TAG).slot
                if slot >= first:
                    self.held.hold(slot, storage)

    def _leave_room(self, signature: Signature, reads: list[int], first: int) -> None:
        """Keep room for the cotangents of what an operator reads and makes."""
        signature.new = False
        room = cotangent_bytes(self, signature, reads, first, len(self.producer))
        if room > self.largest:
            self.largest = room
            self.limit = self.memory - room

    def _make(self, signature: Signature, kind: Kind, result: Any, step: int) -> None:
        """Give a slot to each new storage of a result."""
        if isinstance(result, Tensor):
            if self._is_new(result, signature, kind, step):
                signature.outputs, signature.single = (0,), True
        elif result.__class__ in (tuple, list):
            outputs = tuple(
                index
                for index, tensor in enumerate(result)
                if isinstance(tensor, Tensor)
                and self._is_new(tensor, signature, kind, step)
            )
            # Which results are new storages follows from the signature.
            assert signature.outputs in ((), outputs)
            signature.outputs = outputs

    def _is_new(
        self, tensor: Tensor, signature: Signature, kind: Kind, step: int
    ) -> bool:
        storage = _storage_of(tensor, signature)
        buffer = getattr(storage, TAG, None)
        if buffer is not None and buffer.owner is self.owner:
            return False
        nbytes, known = storage.nbytes(), signature.root
        if known is None or nbytes != signature.nbytes or kind.varying:
            known = self.geometries.of(tensor)
            if signature.single:  # the only result: the same at each call
                signature.root, signature.nbytes = known, nbytes
        slot = self.new_slot(step, nbytes, known)
        buffer = Buffer(self.owner, slot, nbytes, self.counter)
        buffer.uninitialised = kind.uninitialised or kind.collective
        setattr(storage, TAG, buffer)
        return True


def _storage_of(tensor: Tensor, signature: Signature) -> Storage:
    try:
        return tensor.untyped_storage()
    except NotImplementedError:
        raise UnsupportedError(
            f"`{signature.func}` made a tensor of layout `{tensor.layout}`, which has "
            "no storage that could be recomputed. Call it outside `recompute`."
        ) from None


def cotangent_bytes(
    trace: Trace, signature: Signature, reads: Sequence[int], first: int, last: int
) -> int:
    """The bytes of the cotangents that going back through a step may need at once."""
    inputs = {
        slot for slot, flag in zip(reads, signature.differentiable, strict=True) if flag
    }
    made = sum(trace.nbytes[first:last])
    temporaries = 0 if signature.kind.lean else made
    return made + temporaries + sum(trace.nbytes[slot] for slot in inputs)

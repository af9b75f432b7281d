"""A recorded run: its trace, the tensors that autograd saved in it, and its sweep.

Autograd saves tensors for its backward. Under `recompute` it is given a `Handle`
instead, which names a slot and a geometry and holds no value. The run counts the living
handles of each slot; a value that no handle asks for any more is let go, and when none
is left the whole run is.
"""

import threading
from bisect import bisect_left, bisect_right
from itertools import compress
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import Parameter

from retape._warn import warn
from retape.engines.eager._record_bytes import record_size
from retape.engines.eager._wrapper_tensors import (
    SavedWhole,
    save_wrapper,
    writes_of,
)
from retape.engines.eager.trace._geometry import (
    AUTOGRAD,
    NEW,
    Geometry,
    has_storage,
    proxies,
    tensor_on,
    view_through,
)
from retape.engines.eager.trace._holdings import TAG, Tail
from retape.engines.eager.trace._note import Input
from retape.engines.eager.trace._report import Tally
from retape.engines.eager.trace._step import Snapshot, places_of
from retape.engines.eager.trace._trace import Trace

_KEPT_WHOLE = (
    "A tensor of type `{}` was saved for the backward under `recompute`. Nobody can "
    "take it apart (it has no `__tensor_flatten__`), so what is saved of such tensors "
    "is kept, and not recomputed: results are the same, less memory is saved."
)


class Handle:
    """Stands in an autograd graph for a tensor that was saved for backward.

    Its number is -1 if the value is held for good.
    """

    __slots__ = ("geometry", "number", "run", "slot")

    def __init__(self, run: "Run", slot: int, geometry: Geometry, number: int) -> None:
        self.run = run
        self.slot = slot
        self.geometry = geometry
        self.number = number

    def __del__(self) -> None:
        self.run.dropped(self)


class Fetcher(Protocol):
    """Recomputes the value of a handle."""

    def fetch(self, handle: Handle) -> None:
        """Make the trace hold the handle's slot."""
        ...


class Run:
    """The run that handles refer to; it refers to no handle and to no graph."""

    # What compiled code reads at each operator has a fixed place.
    __slots__ = (
        "__dict__", "alive", "living", "lock", "recording", "slot_handles", "stages",
        "trace",
    )  # fmt: skip

    def __init__(self, trace: Trace, tally: Tally) -> None:
        self.trace = trace
        self.tally = tally
        self.lock = threading.RLock()
        self.recording = True
        self.handle_steps: list[int] = []
        self.handle_slots: list[int] = []
        self.places = self.handle_steps  # the steps that they belong to, once settled
        self.alive = bytearray()
        self.sections: list[int] = []
        self.section_numbers: list[int] = []
        self.first_number = 0  # of the section that is reversed
        self.living = 0
        self.slot_handles: dict[int, int] = {}
        self.stages: list[RecomputedValues] = []
        self.sweep: Fetcher | None = None
        self.reversed_inside = self.keeps_whole = False
        self.kept_result: Any = None
        self.names: Any = None  # a policy by the names of regions
        self.inside: list[str] = []
        self.compiled = False  # its record is that of the accelerator, or would be

    def end_of_recording(self) -> None:
        """From now on the run is let go with its last handle."""
        self.note_peak()
        self.recording, self.first_number = False, 0
        self.tally.steps = len(self.trace.steps)
        self.tally.saved = len(self.handle_steps)
        self.tally.record = self.tally.record or record_size(self)
        if not self.living:
            self.let_go()

    def settle_places(self) -> None:
        """From now on what was saved as a result belongs to the step that made it."""
        if self.places is self.handle_steps:
            trace = self.trace
            slots = trace.actuals(self.handle_slots)
            self.places = places_of(
                trace.steps, trace.producer, self.handle_steps, slots
            )

    def note_peak(self) -> None:
        """Take the bytes alive now into the report."""
        self.tally.peak = max(self.tally.peak, self.trace.counter.live)

    def pack(self, tensor: Tensor) -> Any:
        """The handle that takes the place of `tensor` in the graph."""
        if tensor.__class__ is not Tensor and tensor.__class__ is not Parameter:
            wrapper = save_wrapper(tensor, self.pack)
            if isinstance(wrapper, SavedWhole) and not self.keeps_whole:
                self.keeps_whole = True
                warn(_KEPT_WHOLE.format(type(tensor).__name__))
            if wrapper is not None:
                return wrapper
        if not has_storage(tensor) or tensor._is_zerotensor():
            return tensor  # without a storage of values, it is kept as it is
        if proxies() is not None:
            return tensor  # a graph is traced, in which handles have no place
        trace = self.trace
        trace.streams.note(tensor)
        storage = tensor.untyped_storage()
        buffer = getattr(storage, TAG, None)
        if buffer is None or buffer.owner is not trace.owner:
            buffer = trace.adopt(tensor, storage)
        elif buffer.uninitialised and trace.noted(buffer.slot).exposure is not None:
            trace.look_again(buffer, tensor)
        elif writes_of(tensor) > buffer.version:
            trace.written_unseen(buffer, tensor)
        slot = buffer.slot
        if -1 < trace.producer[slot] < trace.section and not buffer.uninitialised:
            slot = trace.carry_over(buffer, tensor)
        note = trace.noted(slot)
        if note.received:
            note.saved = True
            self.living += 1
            return Handle(self, slot, trace.geometries.of(tensor), -1)
        if buffer.uninitialised and note.exposure is None:
            # The operator that is about to run may fill it.
            trace.note(slot).filled_as = slot
        if trace.producer[slot] < 0:
            return self._pack_foreign(slot, tensor)
        step = len(trace.steps)
        number = len(self.handle_steps)
        self.handle_steps.append(step)
        self.handle_slots.append(slot)
        self.alive.append(1)
        self.living += 1
        self.slot_handles[slot] = self.slot_handles.get(slot, 0) + 1
        trace.last_read[slot] = step
        geometry = trace.geometries.of(tensor)
        trace.add_to_tail(slot, storage, geometry)
        return Handle(self, slot, geometry, number)

    def _pack_foreign(self, slot: int, tensor: Tensor) -> Any:
        known = self.trace.noted(slot).input
        assert known is not None
        if known.tensor is tensor:
            return known
        geometry = self.trace.geometries.of(tensor)
        return ForeignView(known, self.trace.roots[slot], geometry)

    def value_of(self, handle: Handle) -> Tensor:
        """The tensor of a handle; it is computed again if nothing holds its value."""
        trace = self.trace
        with self.lock:
            slot = trace.actual(handle.slot)
            storage = trace.tail.partial.get(slot) or trace.held.storages.get(slot)
            if storage is None:
                assert self.sweep is not None
                with trace.streams.at_home():
                    self.sweep.fetch(handle)
                storage = trace.held.storages[slot]
            with torch._C._ExcludeDispatchKeyGuard(NEW):
                return trace.streams.hand_out(tensor_on(storage, handle.geometry))

    def dropped(self, handle: Handle) -> None:
        """A handle has died with its graph."""
        with self.lock:
            if handle.number < 0:
                self.living -= 1
            else:
                self._dropped(handle.slot, handle.number)
            if not self.living and not self.recording:
                self.let_go()

    def _dropped(self, slot: int, number: int) -> None:
        actual = self.trace.actual(slot)
        self.alive[number] = 0
        self.living -= 1
        for stage in self.stages:
            stage.dropped(number, actual)
        left = self.slot_handles[slot] - 1
        if left:
            self.slot_handles[slot] = left
        else:
            del self.slot_handles[slot]
            self.trace.drop_from_tail(slot)
            if actual != slot:
                self.trace.drop_from_tail(actual)

    def begin_section(self) -> None:
        """From here on values made before are held for good where they are read."""
        self.trace.section = len(self.trace.steps)
        self.sections.append(self.trace.section)
        self.section_numbers.append(len(self.handle_steps))

    def enter_section(self, number: int) -> int:
        """Go back into the section in which a tensor was saved; where it began."""
        index = bisect_right(self.section_numbers, number)
        self.first_number = self.section_numbers[index - 1] if index else 0
        return self.sections[index - 1] if index else 0

    def saved_between(self, first: int, last: int) -> range:
        """The numbers of what was saved at steps `first` to `last`, in a section."""
        low = max(self.first_number, bisect_left(self.places, first))
        return range(low, bisect_left(self.places, last + 1))

    def beyond(self, numbers: range) -> range:
        """Numbers of what was saved, with results of the step before their end.

        A result that was placed at the next step since that reads it, too, may have
        been saved as a result after all. When the backward has passed that step, what
        is still alive was.
        """
        places, producer, high = self.places, self.trace.producer, numbers.stop
        if not 0 < high < len(places) or places[high - 1] != places[high] - 1:
            return numbers
        step = places[high]
        while high < len(places) and self.alive[high] and places[high] == step:
            if producer[self.slot_of(high)] != step - 1:
                break
            high += 1
        return range(numbers.start, high)

    def asked_for(self, numbers: range) -> list[int]:
        """The slots of those that are still asked for, with repetitions."""
        some = slice(numbers.start, numbers.stop)
        return self.trace.actuals(compress(self.handle_slots[some], self.alive[some]))

    def living_with_steps(self, first: int, last: int) -> list[tuple[int, int]]:
        """Of what was saved at steps `first` to `last`, the slots, and the steps."""
        numbers = self.saved_between(first, last)
        some = slice(numbers.start, numbers.stop)
        steps = compress(self.places[some], self.alive[some])
        return list(zip(self.asked_for(numbers), steps, strict=True))

    def slot_of(self, number: int) -> int:
        """The slot that a handle stands for."""
        return self.trace.actual(self.handle_slots[number])

    def let_go(self) -> None:
        """Nothing can ask for a value any more."""
        trace = self.trace
        trace.held.clear()
        trace.tail = Tail()
        trace.snapshots = [Snapshot(0, set(), 0)]
        for note in trace.notes.values():  # of gradients, an analysis may still ask
            note.input, note.received = None, False
        trace.random.clear()
        self.stages.clear()
        self.kept_result = None
        self.sweep = None  # it refers to the run: the record would wait for a collector


class ForeignView:
    """A foreign tensor seen through another geometry, without its history."""

    __slots__ = ("geometry", "known", "root")

    def __init__(self, known: Input, root: Geometry, geometry: Geometry) -> None:
        self.known = known
        self.root = root
        self.geometry = geometry

    def value(self) -> Tensor:
        """The tensor, if its storage is as it was."""
        tensor = self.known.value()
        with torch._C._ExcludeDispatchKeyGuard(AUTOGRAD):
            if self.geometry is self.root:
                return tensor_on(tensor.untyped_storage(), self.geometry)
            return view_through(tensor, self.root, self.geometry)


class RecomputedValues:
    """Values recomputed for the handles with some numbers."""

    # Compiled code asks for the ends of the numbers.
    __slots__ = ("left", "_run", "high", "low")

    def __init__(self, run: Run, numbers: range, slots: list[int]) -> None:
        self._run = run
        self.low, self.high = numbers.start, numbers.stop
        self.left: dict[int, int] = {}
        for slot in slots:
            self.left[slot] = self.left.get(slot, 0) + 1

    def dropped(self, number: int, slot: int) -> None:
        """Let a value go with the last of its handles."""
        if not self.low <= number < self.high or slot not in self.left:
            return
        self.left[slot] -= 1
        if not self.left[slot]:
            del self.left[slot]
            self._run.trace.held.release(slot)

    def close(self) -> None:
        """Let every value go."""
        for slot in self.left:
            self._run.trace.held.release(slot)
        self.left.clear()

"""Bytes of storages copied to host memory and back, beside what a device computes.

On a device with streams (CUDA, XPU) copies go on a stream of their own, in page-locked
host memory, and the program's stream goes on: it waits only for a copy that it reads.
A storage that is being copied is held until its copy is complete, so that the bytes
counted as alive are those that the device cannot use again. Where there are no streams
a copy is complete when the call returns.

The order on a device, by events (CUDA Programming Guide, "Streams" and "Events"):

    program    ... make a ......... make b ...... wait for 2 .. read a ...
    copies         wait for a, 1: a to host ... 2: a back from host
"""

from collections import deque
from typing import Any, Protocol

import torch
from torch import Tensor
from torch import UntypedStorage as Storage


class Event(Protocol):
    """A mark on a stream, such as `torch.cuda.Event`."""

    def query(self) -> bool:
        """Tell whether all before it is done."""
        ...

    def synchronize(self) -> None:
        """Wait until it is."""
        ...


class HostCopies:
    """Copies between the host and the devices of a run.

    Attributes:
        waits: How often the host waited until a copy was complete.
    """

    def __init__(self) -> None:
        self.waits = 0
        self._streams: dict[torch.device, tuple[Any, Any]] = {}
        self._under_way: deque[tuple[Event, Storage]] = deque()
        self._begun = 0

    def to_host(self, storage: Storage) -> tuple[Tensor, Event | None]:
        """Begin to copy a storage; its bytes, and when they are there if not yet."""
        content = _bytes_of(storage)
        found = self._stream(storage.device)
        if found is None:
            return content.to("cpu", copy=True), None
        streams, own = found
        # What the program has enqueued so far makes the values.
        own.wait_stream(streams.current_stream(storage.device))
        with streams.stream(own):
            host = enqueue_copy(content, torch.device("cpu"))
            event: Event = own.record_event()
        self._under_way.append((event, storage))
        self._begun += 1
        return host, event

    def to_device(self, content: Tensor, device: torch.device) -> Storage:
        """A new storage with these bytes, which the program's stream may read."""
        found = self._stream(device)
        if found is None:
            return content.to(device, copy=True).untyped_storage()
        streams, own = found
        with streams.stream(own):
            back = enqueue_copy(content, device)
        program = streams.current_stream(device)
        program.wait_stream(own)
        # Its memory is of the other stream's: not to be used again before this one is
        # done with it.
        back.record_stream(program)
        return back.untyped_storage()

    def next_snapshot(self) -> None:
        """Wait until no copies but the last snapshot's are under way.

        A host that runs ahead of its device would hold all snapshots on it otherwise.
        """
        self.settle(self._begun)
        self._begun = 0

    def settle(self, most: int = 0) -> None:
        """Let go of what has been copied; wait until at most so many are under way."""
        while self._under_way:
            event, _ = self._under_way[0]
            if not event.query():
                if len(self._under_way) <= most:
                    return
                self.waits += 1
                event.synchronize()
            self._under_way.popleft()

    def _stream(self, device: torch.device) -> tuple[Any, Any] | None:
        """The functions of streams of a device, and our stream; `None` if none."""
        if device.type == "cpu":
            return None
        if device not in self._streams:
            streams = streams_of(device)
            if streams is None:
                return None
            self._streams[device] = streams, streams.Stream(device=device)
        return self._streams[device]


def streams_of(device: torch.device) -> Any:
    """PyTorch's module for a kind of device, if that has streams of its own."""
    module = torch.get_device_module(device)
    needed = ("Stream", "stream", "current_stream")
    return module if all(hasattr(module, name) for name in needed) else None


def _bytes_of(storage: Storage) -> Tensor:
    content = torch.empty(0, dtype=torch.uint8, device=storage.device)
    content.set_(storage, 0, (storage.nbytes(),), (1,))  # pyright: ignore[reportArgumentType]
    return content


def enqueue_copy(content: Tensor, to: torch.device) -> Tensor:
    """Enqueue a copy on the stream of the moment; host memory is page-locked.

    Only such memory can a device read and write by itself. PyTorch does not use it
    again before the streams are done with it (`CachingHostAllocator`).
    """
    locked = to.type == "cpu"
    copy = torch.empty(content.shape, dtype=torch.uint8, device=to, pin_memory=locked)
    return copy.copy_(content, non_blocking=True)

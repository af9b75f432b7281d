"""The streams of a device on which a program runs, and on which it runs again.

A CUDA program may enqueue its operators on several streams, and orders them by events.
Autograd goes back through each of its nodes on the stream of its forward. All that is
recomputed is recomputed on one stream, that on which the run began: the stream that
asked waits for it, and what it is given is not used again before it is done with it
(CUDA Programming Guide, "Streams" and "Events"; `torch.Tensor.record_stream`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

# Asked at each value that is saved: `torch.cuda.current_stream` takes 40 microseconds
# of Python there (an H100's host).
_present = torch.accelerator.current_stream


class HomeStreams:
    """The stream of each CUDA device on which a run began.

    Attributes:
        several: Whether something was done on another one.
    """

    __slots__ = ("_home", "_numbers", "several")

    def __init__(self) -> None:
        used = torch.cuda.is_initialized()
        devices = range(torch.cuda.device_count() if used else 0)
        self._home = [torch.cuda.current_stream(index) for index in devices]
        self._numbers = [home.stream_id for home in self._home]
        self.several = False

    @property
    def default(self) -> bool:
        """Whether they are those that PyTorch begins with."""
        return not any(self._numbers)

    def _apart(self, index: int) -> tuple[Any, Any] | None:
        """The home and the present stream of a device, if they differ."""
        numbers = self._numbers
        if index >= len(numbers) or _present(index).stream_id == numbers[index]:
            return None
        return self._home[index], torch.cuda.current_stream(index)

    def note(self, tensor: Tensor) -> None:
        """Note on which stream a tensor was saved."""
        if tensor.is_cuda and not self.several:
            self.several = self._apart(tensor.get_device()) is not None

    @contextmanager
    def at_home(self) -> Iterator[None]:
        """Recompute on the home stream, after what was enqueued on the present one."""
        found = self._apart(torch.cuda.current_device()) if self._home else None
        if found is None:
            yield
            return
        home, present = found
        self.several = True
        home.wait_stream(present)
        with torch.cuda.stream(home):
            yield

    def hand_out(self, tensor: Tensor) -> Tensor:
        """A value that was computed at home, for the stream that has asked for it."""
        found = self._apart(tensor.get_device()) if tensor.is_cuda else None
        if found is not None:
            home, present = found
            self.several = True
            present.wait_stream(home)
            tensor.record_stream(present)
        return tensor

    def take_in(self, tensor: Tensor) -> None:
        """Read at home what may have been made on another stream."""
        if tensor.is_cuda:
            tensor.record_stream(torch.cuda.current_stream(tensor.get_device()))

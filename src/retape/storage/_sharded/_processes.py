"""The processes of one JAX program, and what they tell one another.

What one says comes to all by a collective of JAX's own, so all must speak in the same
order. That they do, since they run the same program; what depends on a clock or a file
is decided by the first.
"""

# JAX is found when it is needed, and has no types here.
# pyright: standard

from __future__ import annotations

from importlib import import_module
from typing import Any

from retape._errors import StoreError


class Processes:
    """All processes of a program, each of which has devices of a mesh.

    Attributes:
        rank: The number of this one.
    """

    def __init__(self) -> None:
        jax = import_module("jax")
        self.rank: int = jax.process_index()

    def all_gather(self, said: bytes) -> list[bytes]:
        """What each process says, by their numbers."""
        numpy = import_module("numpy")
        lengths = _gathered(numpy.array([len(said)], numpy.int32))[:, 0]
        padded = numpy.zeros(max(1, int(lengths.max())), numpy.uint8)
        padded[: len(said)] = numpy.frombuffer(said, numpy.uint8)
        rows = _gathered(padded)
        return [row[:n].tobytes() for row, n in zip(rows, lengths, strict=True)]


def processes_of(mesh: Any) -> Processes | None:
    """The processes that have devices of a mesh; `None` if it is one.

    Raises:
        StoreError: If these are some of the program's processes, and not all.
    """
    devices = getattr(mesh, "devices", None)
    if devices is None:
        return None
    found = {device.process_index for device in devices.flat}
    if len(found) < 2:
        return None
    count = import_module("jax").process_count()
    if len(found) < count:
        raise StoreError(
            f"`mesh=` has devices of {len(found)} of {count} processes, and what a "
            "store of several processes keeps is agreed on by all. Pass a mesh with "
            "devices of each, or of one process."
        )
    return Processes()


def _gathered(array: Any) -> Any:
    return import_module("jax.experimental.multihost_utils").process_allgather(array)

"""The processes of one JAX program: a communicator by a collective of JAX's own."""

# JAX is found when it is needed, and has no types here.
# pyright: standard

from __future__ import annotations

import pickle
from importlib import import_module
from typing import Any

from retape._errors import StoreError


class Processes:
    """All processes of a program, each of which has devices of a mesh."""

    def Get_rank(self) -> int:
        """The number of this one."""
        return import_module("jax").process_index()

    def Get_size(self) -> int:
        """How many there are."""
        return import_module("jax").process_count()

    def allgather(self, sendobj: Any) -> list[Any]:
        """What each process says, by their numbers."""
        numpy = import_module("numpy")
        said = pickle.dumps(sendobj)
        lengths = _gathered(numpy.array([len(said)], numpy.int32))[:, 0]
        padded = numpy.zeros(int(lengths.max()), numpy.uint8)
        padded[: len(said)] = numpy.frombuffer(said, numpy.uint8)
        rows = zip(_gathered(padded), lengths, strict=True)
        # Between processes that run, and in no file: so `pickle` opens no door.
        return [pickle.loads(row[:n].tobytes()) for row, n in rows]


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

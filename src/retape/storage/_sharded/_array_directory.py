"""A run's directory with a folder of arrays for each snapshot and record.

Several processes may share it. Each writes and reads its own parts of arrays. The small
files, and all that is looked up, removed or locked, are the first process's: it does
what it is asked, and tells the others what it has found, or what went wrong. So all of
them see the same. One process is a group of one.
"""

from __future__ import annotations

import os
import pickle
import re
import uuid
from collections.abc import Callable
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from typing import Any, TypeVar

import numpy as np

from retape._errors import SnapshotError, StoreError
from retape.storage._base import Key
from retape.storage._run_directory import (
    RECORD,
    RECORD_BEFORE,
    RunDirectory,
    stem_of,
)
from retape.storage._sharded._group import Alone, Communicator, Group, unlike

T = TypeVar("T")

_FOLDER = re.compile(r"(step|tape)-\d{12}-[0-9a-f]{8}|record-[0-9a-f]{8}")


class ArrayDirectory(RunDirectory):
    """The files of a `RunDirectory`, and arrays beside them.

    Attributes:
        path: The directory, on a file system that all processes see.
        is_shared: Whether there are several.
        is_first: Whether this process is the one that has the files, and says what an
            array is.
    """

    __slots__ = ("_group", "is_first", "is_shared")

    def __init__(
        self, path: str | os.PathLike[str], processes: Communicator | None = None
    ) -> None:
        super().__init__(path)
        self._group = Group(processes or Alone(), "process")
        self.is_first, self.is_shared = self._group.is_first, self._group.is_many

    def _take(self) -> None:
        """Keep other programs out; see that the directory is the same for all."""
        self.first(super()._take)
        if not self.is_shared:
            return
        place = self.path / "arrays" / self.new_folder("shared")
        self.first(lambda: place.mkdir(parents=True))
        there = self._group.heard(os.path.isdir(place))
        self.first(place.rmdir)
        if not all(there):
            self._give_up()
            raise StoreError(
                f"`{self}` is not the same directory for process {there.index(False)} "
                "as for the first one. Pass a path on a file system that all "
                "processes share."
            )

    # What the processes do together.

    def first(self, call: Callable[[], T]) -> T:
        """Let the first process do something; what it found, or its error, for all."""
        return self._group.first(call)

    def agree(self, said: bool) -> bool:
        """Whether all processes say so."""
        return self._group.agree(said)

    def together(self, call: Callable[[], T], alike: Callable[[], bytes]) -> T:
        """Do something in each process, which has something alike in all.

        Raises:
            SnapshotError: If one could not read its part, and all can go on.
            StoreError: For all else, and if something is not alike.
        """
        found, heard = self._group.together(call, says=lambda _: alike())
        if (other := unlike(heard)) is not None:
            raise StoreError(
                f"`{self}`: process {other[0]} has other values than the first one in "
                "what is not sharded, so it is another state. Make one array of "
                "all processes' parts (`jax.make_array_from_process_local_data`), "
                "or give each process a store of its own (`RankStore`)."
            )
        return found

    # Files: the first process's, and what is written must be alike in all.

    def names(self) -> set[str]:
        return self.first(super().names)

    def contents(self, name: str) -> bytes:
        inner = super().contents
        return self.first(lambda: inner(name))

    def write(self, name: str, data: bytes) -> None:
        inner = super().write
        self.together(lambda: None, lambda: blake2b(data).digest())
        self.first(lambda: inner(name, data))

    def exists(self, name: str) -> bool:
        inner = super().exists
        return self.first(lambda: inner(name))

    def unlink(self, name: str) -> None:
        inner = super().unlink
        self.first(lambda: inner(name))

    def rename(self, name: str, to: str) -> None:
        inner = super().rename
        self.first(lambda: inner(name, to))

    def label(self, name: str) -> dict[str, Any]:
        inner = super().label
        return self.first(lambda: inner(name))

    # Folders of arrays.

    def at(self, folder: str, name: str) -> Path:
        """Where an array is.

        Raises:
            SnapshotError: If this library gives no such names, or made no such link.
        """
        found = self.path / "arrays" / folder / name
        known = _FOLDER.fullmatch(folder) and (name.isdigit() or not name)
        if not known or any(p.is_symlink() for p in (found, *list(found.parents)[:2])):
            raise SnapshotError(f"`{found}` is not a place for arrays. Remove it.")
        return found

    def new_folder(self, stem: str) -> str:
        """A name that no folder of arrays has had."""
        return self.first(lambda: f"{stem}-{uuid.uuid4().hex[:8]}")

    def remove_folder(self, folder: str) -> None:
        """Remove a folder of arrays."""
        place = self.path / "arrays" / folder
        self.first(lambda: rmtree(place, ignore_errors=True))

    def _keep_folders(self, is_kept: Callable[[str, str], bool]) -> None:
        """Remove the folders that are not kept, by what their names begin with."""
        arrays = self.path / "arrays"
        for folder in self.first(lambda: sorted(f.name for f in arrays.glob("*-*"))):
            if not is_kept(folder.rpartition("-")[0], folder):
                self.remove_folder(folder)

    def keep_one(self, key: Key, folder: str) -> None:
        """Remove all other folders of a snapshot."""
        stem = stem_of(key)
        self._keep_folders(lambda begins, name: begins != stem or name == folder)

    def keep_records(self) -> None:
        """Remove the arrays of records that have gone."""
        files = (RECORD, RECORD_BEFORE)
        kept = {name for file in files for name in self.label(file).get("arrays", ())}
        self._keep_folders(lambda begins, name: begins != "record" or name in kept)

    def remove(self, key: Key) -> None:
        """Remove a snapshot with its arrays."""
        super().remove(key)
        self.keep_one(key, "")

    def remove_records(self) -> None:
        super().remove_records()
        self.keep_records()

    def remove_unfinished(self) -> None:
        super().remove_unfinished()
        self.keep_records()
        stems = {"record", *map(stem_of, self.snapshots())}
        self._keep_folders(lambda begins, name: begins in stems)


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
        said = pickle.dumps(sendobj)
        lengths = _gathered(np.array([len(said)], np.int32))[:, 0]
        padded = np.zeros(int(lengths.max()), np.uint8)
        padded[: len(said)] = np.frombuffer(said, np.uint8)
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

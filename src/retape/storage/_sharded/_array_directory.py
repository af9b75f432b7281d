"""A run's directory with a folder of arrays for each snapshot and record.

Several processes may share it. Each writes and reads its own parts of arrays. The small
files, and all that is looked up, removed or locked, are the first process's: it does
what it is asked, and tells the others what it has found, or what went wrong. So all of
them see the same.
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
from retape.storage._codec import decode, read_label
from retape.storage._run_directory import (
    RECORD,
    RECORD_BEFORE,
    RunDirectory,
    stem_of,
)
from retape.storage._sharded._group import Communicator, Group, unlike

T = TypeVar("T")

_FOLDER = re.compile(r"(step|tape)-\d{12}-[0-9a-f]{8}|record-[0-9a-f]{8}")


class ArrayDirectory(RunDirectory):
    """The files of a `RunDirectory`, and arrays beside them.

    Attributes:
        is_first: Whether this process is the one, or the first of several, that says
            what an array is.
    """

    __slots__ = ()

    is_first = True

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
        return f"{stem}-{uuid.uuid4().hex[:8]}"

    def together(self, call: Callable[[], T], alike: Callable[[], bytes]) -> T:
        """Do something in each process, which has something alike in all."""
        del alike  # There is one process.
        return call()

    def remove(self, key: Key) -> None:
        """Remove a snapshot with its arrays."""
        RunDirectory.remove(self, key)
        self.keep_one(key, "")

    def remove_folder(self, folder: str) -> None:
        """Remove a folder of arrays."""
        rmtree(self.path / "arrays" / folder, ignore_errors=True)

    def keep_one(self, key: Key, folder: str) -> None:
        """Remove all other folders of a snapshot."""
        for found in (self.path / "arrays").glob(f"{stem_of(key)}-*"):
            if found.name != folder:
                self.remove_folder(found.name)

    def keep_records(self) -> None:
        """Remove the arrays of records that have gone."""
        files = (self.path / RECORD, self.path / RECORD_BEFORE)
        kept = {name for file in files for name in read_label(file).get("arrays", ())}
        for found in (self.path / "arrays").glob("record-*"):
            if found.name not in kept:
                self.remove_folder(found.name)

    def remove_records(self) -> None:
        RunDirectory.remove_records(self)
        self.keep_records()

    def remove_unfinished(self) -> None:
        RunDirectory.remove_unfinished(self)
        self.keep_records()
        stems = {stem_of(key) for key in self.snapshots()}
        for found in (self.path / "arrays").glob("*-*-*"):
            if found.name.rpartition("-")[0] not in stems:
                self.remove_folder(found.name)


class SharedDirectory(ArrayDirectory):
    """What `ArrayDirectory` is, for all processes of a program together.

    Attributes:
        path: The directory, on a file system that all processes see.
        is_first: Whether this process is the one that has the files.
    """

    def __init__(self, own: ArrayDirectory, processes: Communicator) -> None:
        super().__init__(own.path)
        self._own, self._group = own, Group(processes, "process")
        self.is_first = self._group.is_first
        self._claimed = False

    def claim(self) -> None:
        """Keep other programs out; see that the directory is the same for all.

        Raises:
            StoreError: If it is not, or another program has it.
        """
        self._group.first(self._own.claim)
        self._claimed = True
        place = self.path / "arrays" / self.new_folder("shared")
        self._group.first(lambda: place.mkdir(parents=True))
        there = self._group.heard(os.path.isdir(place))
        self._group.first(place.rmdir)
        if not all(there):
            self.release()
            raise StoreError(
                f"`{self}` is not the same directory for process {there.index(False)} "
                "as for the first one. Pass a path on a file system that all "
                "processes share."
            )

    def release(self) -> None:
        """Let others in; nobody waits for anybody, since this may be alone in it."""
        self._claimed = False
        if self.is_first:
            self._own.release()

    def is_claimed(self) -> bool:
        """Whether `claim` was called."""
        return self._claimed

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

    def get(self, key: Key) -> tuple[Any, dict[str, Any]]:
        """A state or a tape, and its label.

        Raises:
            SnapshotError: If it is not there, or damaged.
        """
        data = self._group.first(lambda: self._own.contents(self._own.name(key)))
        return decode(data, self.where(key))

    def put(self, key: Key, data: bytes) -> None:
        """Write a state or a tape, which must be alike in all processes."""
        self.together(lambda: None, lambda: blake2b(data).digest())
        self._group.first(lambda: self._own.put(key, data))

    def read_record(self) -> tuple[Any, dict[str, Any]] | None:
        """The last record, or the one before it if the last one is damaged."""
        found = self._group.first(self._own.record_contents)
        return None if found is None else decode(found[1], found[0])

    def write_record(self, data: bytes) -> None:
        """Write the record, which must be alike in all processes."""
        self.together(lambda: None, lambda: blake2b(data).digest())
        self._group.first(lambda: self._own.write_record(data))

    def decide(self, says: Callable[[], bool]) -> bool:
        """What the first process says."""
        return self._group.first(says)

    def agree(self, said: bool) -> bool:
        """Whether all processes say so."""
        return self._group.agree(said)


def _by_the_first(name: str) -> Any:
    """What the first process does, and all are told."""

    def done(self: SharedDirectory, *given: Any) -> Any:
        return self._group.first(lambda: getattr(self._own, name)(*given))  # pyright: ignore[reportPrivateUsage]

    return done


for _name in (
    *("has", "label", "snapshots", "new_folder", "remove", "remove_folder"),
    *("keep_one", "keep_records", "remove_unfinished"),
    *("remove_last_record", "remove_records"),
):
    setattr(SharedDirectory, _name, _by_the_first(_name))


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

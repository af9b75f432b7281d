"""A run's directory with a folder of arrays for each snapshot and record."""

import re
import uuid
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import TypeVar

from retape._errors import SnapshotError
from retape.storage._base import Key
from retape.storage._codec import read_label
from retape.storage._run_directory import (
    RECORD,
    RECORD_BEFORE,
    RunDirectory,
    stem_of,
)

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

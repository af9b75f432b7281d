"""Runs that another process can take up again: where each is kept, and as what.

A program may apply `checkpoint-*j` more than once. Its outermost applications are
counted, and each has a folder of its own. Those inside one are single steps of it, and
are kept in memory as they always are.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from retape._errors import PlanError, UnsupportedError
from retape.storage import Place, SnapshotStore, StoreWrapper
from retape.storage._disk import DiskStore

Store = str | os.PathLike[str] | DiskStore[Any]
"""Where a program's runs are kept: a directory, or a store made for one."""


@dataclass(slots=True)
class Disk:
    """The runs of one program on disk.

    Attributes:
        store: Whose directory has a folder for each run.
        count: How many there have been.
    """

    store: Store
    count: int = field(default=0)

    def __post_init__(self) -> None:
        if not isinstance(self.store, (str, os.PathLike, DiskStore)):
            raise PlanError(
                f"`store={self.store!r}`: each run of a compiled program is kept in a "
                "directory of its own; pass a directory, or a `DiskStore`"
            )

    def next(
        self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]
    ) -> SnapshotStore[Any]:
        """The store of the next outermost run."""
        self.count += 1
        given = self.store
        store = given if isinstance(given, DiskStore) else DiskStore(given)
        path = Path(store.path) / f"run-{self.count:04d}"
        return PackedStore(replace(store, path=path), pack, unpack)


@dataclass(slots=True)
class PackedStore(StoreWrapper[Any]):
    """States of the program as trees of arrays, as cotangents are.

    Attributes:
        inner: The store that is given the trees.
        pack: From a state to a tree.
        unpack: The inverse.
    """

    inner: SnapshotStore[Any]
    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]

    def put(self, place: Place, capsule: Any, nbytes: int) -> None:
        packed = self.pack(capsule)
        self.inner.put(place, packed, nbytes)

    def get(self, place: Place) -> Any:
        return self.unpack(self.inner.get(place))


def is_outermost(level: int, outermost: str) -> bool:
    """Tell whether a run of `checkpoint-*j` at a level is one to be kept on disk.

    Raises:
        UnsupportedError: If it stands in another derivative, whose numbers it holds.
    """
    if level > 1 and outermost != "checkpoint-*j":
        raise UnsupportedError(
            f"`checkpoint-*j` inside `{outermost}` cannot be kept on disk: its states "
            "hold numbers that carry the outer derivative. Make the outermost "
            "derivative `checkpoint-*j`, or leave `store` out."
        )
    return level == 1

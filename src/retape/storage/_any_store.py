"""What `store=` may be, wherever a run keeps snapshots: a store, or a folder."""

import os
from typing import Any, TypeAlias, cast

from retape._errors import StoreError
from retape.storage._base import SnapshotStore
from retape.storage._disk import DiskStore

AnyStore: TypeAlias = SnapshotStore[Any] | str | os.PathLike[str]
"""A store, or the folder of a `DiskStore`."""

_PLACES = frozenset({"memory", "ram", "cpu", "host", "device", "gpu", "cuda", "disk"})
"""Words that mean a place, and would be the names of folders."""


def store_of(store: object) -> SnapshotStore[Any] | None:
    """The store that `store=` means; a path is that of a `DiskStore`.

    Raises:
        StoreError: If it is neither a store nor a path nor `None`, or a word for a
            place.

    Examples:
        >>> store_of("run").path, store_of(None)
        ('run', None)
    """
    if store is None:
        return None
    if isinstance(store, SnapshotStore):
        return cast("SnapshotStore[Any]", store)
    if isinstance(store, str | os.PathLike) and store not in _PLACES:
        return DiskStore[Any](cast("str", store))
    raise StoreError(
        f"`store={store!r}` is not a store. Pass a `retape.MemoryStore()`, a "
        "`retape.DiskStore(directory)`, a directory, or a `retape.TieredStore` of "
        "both stores; one of your own is a subclass of "
        "`retape.storage.SnapshotStore`."
    )

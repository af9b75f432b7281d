"""Keeping a second run out of a store that is in use in this process.

Runs of one schedule use the same slots for the same steps, so two of them on one store
would read each other's states without noticing. Between processes a `DiskStore` has a
lock of its own.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from retape._errors import StoreError
from retape.storage import SnapshotStore

_STORES: dict[int, int] = {}
"""The stores in use, by their identity, and the thread of the run that uses each."""

_GUARD = threading.Lock()


@contextmanager
def claimed(store: SnapshotStore[Any]) -> Generator[None]:
    """Claim a store, and the stores that it consists of, for one run.

    Raises:
        StoreError: If another run has it, in this thread or in another.
    """
    claims = list(map(id, store.claims()))
    with _GUARD:
        for claim in claims:
            if claim in _STORES:
                mine = _STORES[claim] == threading.get_ident()
                where = (
                    "one that this run is a part of" if mine else "in another thread"
                )
                raise StoreError(
                    f"`store={store!r}` is in use by another run, {where}. Give each "
                    "run a store of its own."
                )
        _STORES.update(dict.fromkeys(claims, threading.get_ident()))
    try:
        yield
    finally:
        with _GUARD:
            for claim in claims:
                del _STORES[claim]

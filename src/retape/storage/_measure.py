"""How fast a store is, measured: what a plan over tiers weighs against steps."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from retape._bytes import format_bytes, parse_bytes
from retape._errors import StoreError
from retape.storage._base import Place, SnapshotStore, is_durable
from retape.storage._disk import DiskStore


@dataclass(frozen=True, slots=True)
class Speed:
    """What a store takes for snapshots of one size.

    Attributes:
        nbytes: The bytes of a snapshot.
        write: Seconds for writing one, until it is safe.
        read: Seconds for reading one. The operating system may have it in memory still.
    """

    nbytes: int
    write: float
    read: float

    def __str__(self) -> str:
        return (
            f"{format_bytes(self.nbytes)} written in {self.write:.3g} s "
            f"({format_bytes(int(self.nbytes / max(self.write, 1e-9)))}/s), read in "
            f"{self.read:.3g} s "
            f"({format_bytes(int(self.nbytes / max(self.read, 1e-9)))}/s)"
        )


def measure(
    store: str | os.PathLike[str] | SnapshotStore[Any],
    *,
    nbytes: int | str = "16 MB",
    snapshots: int = 3,
) -> Speed:
    """Measure how long a store takes for a snapshot.

    Divide by the seconds of a step for the costs of `retape.tiers`:
    `retape.Tier("disk", 100, speed.write / step, speed.read / step)`.

    Args:
        store: A directory, in which a `DiskStore` is made and removed again; or a store
            that holds nothing.
        nbytes: The bytes of a snapshot of yours: 8 a number, at least 8.
        snapshots: How many are written and read; the result is their median.

    Raises:
        StoreError: If the store holds a run, or cannot be used.
        PlanError: If `nbytes` is no amount of bytes.

    Examples:
        >>> import tempfile
        >>> from retape.storage import measure
        >>> speed = measure(tempfile.gettempdir(), nbytes="1 MB")
        >>> speed.nbytes, speed.write > 0, speed.read > 0
        (1000000, True, True)
    """
    size = parse_bytes(nbytes, "nbytes")
    if isinstance(store, str | os.PathLike):
        try:
            with tempfile.TemporaryDirectory(dir=store) as path:
                return _measured(DiskStore[Any](path), size, snapshots)
        except OSError as error:
            raise StoreError(
                f"`{os.fspath(store)}` cannot be used: {error}. Pass a directory that "
                "is there, and may be written to."
            ) from error
    if not isinstance(store, SnapshotStore):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise StoreError(f"`store={store!r}` is not a store. Pass one, or a directory.")
    return _measured(store, size, snapshots)


def _measured(store: SnapshotStore[Any], nbytes: int, snapshots: int) -> Speed:
    # Random, so that no codec and no disk makes less of it.
    source = np.random.default_rng(0)
    durable = store if is_durable(store) else None
    if durable is not None and durable.open("a measurement") is not None:
        durable.close()
        raise StoreError(f"`store={store!r}` holds a run. Pass one that is empty.")
    writes: list[float] = []
    reads: list[float] = []
    try:
        for slot in range(max(1, snapshots)):
            field = source.random(max(1, nbytes // 8))
            began = perf_counter()
            store.put(Place(slot, slot, "disk"), field, field.nbytes)
            store.flush()
            writes.append(perf_counter() - began)
        for slot in range(len(writes)):
            began = perf_counter()
            store.get(Place(slot, slot, "disk"))
            reads.append(perf_counter() - began)
        for slot in range(len(writes)):
            store.drop(Place(slot, slot, "disk"))
    finally:
        if durable is not None:
            durable.clear()
            durable.close()
    return Speed(nbytes, median(writes), median(reads))

"""A store on disk, which a run that was killed finds again.

One file per snapshot, named for its step, in a `_run_directory.RunDirectory`: whole or
not there, and out of reach for a second process.

The record of how far the run has come is kept twice: should the newer one be damaged,
the run goes on from the older one, and what was removed since is recomputed; should
both be, it is refused. A run that is done leaves its record, so that a process that
dies before it has used the result can ask for it again. `clear`, or removing the
directory, begins anew.
"""

import os
from collections.abc import Set
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeAlias, TypeVar, cast

from retape._arguments import number_of
from retape._errors import SnapshotError, StoreError
from retape.storage._base import Key, Place, Record, SnapshotStore
from retape.storage._capacity import check_capacities, check_held, check_room, fits
from retape.storage._codec import encode
from retape.storage._run_directory import Folder, RunDirectory, another_run

C = TypeVar("C")

_SHARE = 10
"""Times as long as a record took to wait until the next: of 1 GB states on a disk of
50 MB/s, records every 2 seconds were 65 % of a run."""


@dataclass(slots=True)
class DiskStore(SnapshotStore[C]):
    """Keeps each snapshot in a file of its own.

    Capsules, cotangents and tapes are trees of NumPy arrays and plain Python values; in
    them may be objects whose class has the four methods that states have, or is known
    by `retape.register_state`.

    Args:
        path: A directory of the run's own; made if it is not there. `~` is the user's.
        capacity: The most snapshots to hold, or `None`.
        capacity_bytes: The most bytes of the arrays in them, or a text such as "2 GiB",
            or `None`; a file takes about 1 kB more. Two records, each with two states
            and a cotangent, come on top.
        every: The record of how far the run has come is written this many seconds after
            the last one, and whenever four dropped snapshots wait for it; but not
            before ten times as long has passed as the last one took. With 0 it is
            written after each stage.

    Raises:
        StoreError: If `path` is no path of this machine, or `every` or a capacity
            cannot be.

    Examples:
        >>> import tempfile
        >>> from retape import DiskStore
        >>> from retape.storage import Place
        >>> with tempfile.TemporaryDirectory() as path:
        ...     store = DiskStore(path)
        ...     _ = store.open("an example")
        ...     store.put(Place(7, 0, "disk"), (1, 2.5), 16)
        ...     store.get(Place(7, 0, "disk"))
        (1, 2.5)
    """

    path: str | os.PathLike[str]
    capacity: int | None = None
    capacity_bytes: int | str | None = None
    every: float = 2.0
    peak_snapshots: int = field(default=0, init=False, repr=False)
    peak_bytes: int = field(default=0, init=False, repr=False)
    nbytes: int = field(default=0, init=False, repr=False)
    _label: str = field(default="", init=False, repr=False)
    _sizes: dict[Key, int] = field(
        default_factory=dict[Key, int], init=False, repr=False
    )
    _dropped: dict[Key, int] = field(
        default_factory=dict[Key, int], init=False, repr=False
    )
    _recorded: float = field(default=0.0, init=False, repr=False)
    _took: float = field(default=0.0, init=False, repr=False)
    _directory: Folder = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_path(self.path)
        _check_every(self.every)
        self.capacity = check_capacities(self.capacity, self.capacity_bytes)
        self._directory = self._folder()

    @property
    def is_durable(self) -> bool:
        return True

    @property
    def gives_copies(self) -> bool:
        return True

    @property
    def keeps_records(self) -> bool:
        return True

    def _folder(self) -> Folder:
        return RunDirectory(self.path)

    def open(self, label: str) -> Record | None:
        self._directory.claim()
        try:
            return self._begin(label)
        except BaseException:
            self.close()
            raise

    def _begin(self, label: str) -> Record | None:
        self._label, self._recorded = label, monotonic()
        self._forget()
        self.peak_snapshots = self.peak_bytes = 0
        self._directory.remove_unfinished()
        record = self._read_record(label)
        if record is None:
            # So that another run is refused from now on, and a bad place right away.
            self.record(Record(None, None, None, label))
        return record

    def rewind(self) -> Record | None:
        """Go back to the record before the last one; `None` if there is none."""
        self._directory.remove_last_record()
        return self._read_record(self._label)

    def forget_records(self) -> None:
        """Go back to the beginning, with the snapshots that are there."""
        self._directory.remove_records()
        self.record(Record(None, None, None, self._label))

    def _read_record(self, label: str) -> Record | None:
        try:
            found = self._directory.read_record()
        except SnapshotError as error:
            raise self._no_record(error) from error
        if found is None:
            return None
        (length, left, cotangent), kept = found
        if kept.get("run") != label:
            raise another_run(self._directory, str(kept.get("run")), label, left == 0)
        return Record(length, left, cotangent, label)

    def _no_record(self, error: SnapshotError) -> StoreError:
        """The refusal of a run both of whose records are damaged."""
        return StoreError(
            f"`{self._directory}` has no record of its run that can be read "
            f"({str(error).partition('. ')[0]}). Call `clear()` on the store, or "
            "remove the directory; the run then begins anew."
        )

    def steps(self) -> set[int]:
        return {step for step, tape in self._directory.snapshots() if not tape}

    def has(self, place: Place) -> bool:
        """Whether there is a file of this state or tape."""
        return self._directory.has(place.key)

    def has_room(self, nbytes: int) -> bool:
        """Whether one more snapshot of this size would be within both capacities."""
        return fits(self, len(self._sizes) + 1, self.nbytes + nbytes)

    def keep_only(self, steps: set[int], tapes: Set[int] = frozenset()) -> None:
        found = self._directory.snapshots()
        kept = {(k, False) for k in steps} | {(k, True) for k in tapes}
        for key in found - kept:
            self._directory.remove(key)
        self._forget()
        for key in found & kept:
            self._sizes[key] = self._label_of(key).get("nbytes", 0)
        self.nbytes = sum(self._sizes.values())
        check_held(self, f"`{self._directory}`", len(self._sizes), self.nbytes)
        self._note_peak()

    def put(self, place: Place, capsule: C, nbytes: int) -> None:
        step, key, held = place.step, place.key, len(self._sizes)
        check_room(self, f"`{self._directory}`", step, nbytes, held, self.nbytes)
        data = encode(capsule, {**self._tag(key), "nbytes": nbytes})
        self._dropped.pop(key, None)
        while self._dropped and self._over(nbytes):
            self._remove_dropped()
        try:
            self._directory.put(key, data)
        except StoreError:
            if not self._dropped:
                raise
            while self._dropped:
                self._remove_dropped()
            self._directory.put(key, data)
        self.nbytes += nbytes - self._sizes.get(key, 0)
        self._sizes[key] = nbytes
        self._note_peak()

    def get(self, place: Place) -> C:
        key = place.key
        value, label = self._directory.get(key)
        label.pop("nbytes", None)
        if label != self._tag(key):
            raise SnapshotError(
                f"`{self._directory.where(key)}` belongs to another run or step, "
                f"{label}. Remove the file; its state is recomputed."
            )
        return value

    def drop(self, place: Place) -> None:
        key = place.key
        self._dropped[key] = self._sizes.pop(key, 0)
        self.nbytes -= self._dropped[key]

    def record_due(self) -> bool:
        since = monotonic() - self._recorded
        if self.every > 0 and since < _SHARE * self._took:
            return False
        return len(self._dropped) >= 4 or since >= self.every

    def record(self, record: Record) -> None:
        began, value = monotonic(), (record.length, record.left, record.cotangent)
        self._directory.write_record(encode(value, self._record_label(value)))
        while self._dropped:
            self._remove_dropped()
        self._recorded = monotonic()
        self._took = self._recorded - began

    def clear(self) -> None:
        """Remove the run's files, so that the next call begins anew."""
        claimed_here = not self._directory.is_claimed()
        if claimed_here:
            self._directory.claim()
        # The record goes first: snapshots without one are a run at its beginning.
        self._directory.remove_records()
        self.keep_only(set())
        if claimed_here:
            self.close()

    def close(self) -> None:
        self._directory.release()

    def _label_of(self, key: Key) -> dict[str, Any]:
        return self._directory.label(self._directory.name(key))

    def _tag(self, key: Key) -> dict[str, object]:
        step, tape = key
        return {"run": self._label, "tape" if tape else "step": step}

    def _record_label(self, value: Any) -> dict[str, object]:
        """What a record is of; `value` is what it holds."""
        del value
        return {"run": self._label}

    def _note_peak(self) -> None:
        self.peak_snapshots = max(self.peak_snapshots, len(self._sizes))
        self.peak_bytes = max(self.peak_bytes, self.nbytes)

    def _forget(self) -> None:
        """Know of no snapshot."""
        self._sizes.clear()
        self._dropped.clear()
        self.nbytes = 0

    def _remove_dropped(self) -> None:
        """Remove the file dropped first.

        Once the next record is written nobody needs it. Before, that is when its room
        is needed, a process that goes on from the last record will recompute it.
        """
        key = next(iter(self._dropped))
        self._directory.remove(key)
        del self._dropped[key]

    def _over(self, nbytes: int) -> bool:
        """Whether one more file beside all, dropped ones too, exceeds a capacity."""
        count = len(self._sizes) + len(self._dropped) + 1
        held = self.nbytes + sum(self._dropped.values()) + nbytes
        return not fits(self, count, held)


def _check_path(path: object) -> None:
    try:
        text = os.fspath(cast("str", path))
    except TypeError:
        text = None
    if not isinstance(text, str) or "\0" in text:
        raise StoreError(
            f"`path={path!r}` is not a path. Pass the name of a directory of the run's "
            "own, as a text or a `pathlib.Path`."
        )


def _check_every(every: object) -> None:
    if not number_of(every) >= 0:
        raise StoreError(
            f"`every={every!r}` is not valid: it is the seconds from one record to the "
            "next. Pass a number, 0 for a record after each stage."
        )


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

"""A store whose writes and reads go on while the program computes.

Its calls are obeyed in their order by one thread, so what is on the disk at any moment
is what a run without the thread would have had a little earlier, and a run that is
killed is taken up from there.
"""

# A property takes the place of what a plain store has as attributes.
# pyright: reportIncompatibleVariableOverride=false

from collections.abc import Set
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from retape._bytes import parse_bytes
from retape._errors import StoreError
from retape.storage._background import Background, Job
from retape.storage._base import (
    Key,
    Place,
    Record,
    SnapshotStore,
    StoreWrapper,
    answered_by,
    is_durable,
)
from retape.storage._trees._tree import copy_tree, tree_nbytes

C = TypeVar("C")


@dataclass(slots=True, eq=False)
class AsyncStore(StoreWrapper[C]):
    """Lets another store work in the background, in a thread of its own.

    A snapshot that is put waits in a buffer until it is written, and the driver goes
    on; the one that the schedule reads next is read while it computes. All that the
    store promises for a run that is killed holds: what was in the buffer is recomputed.
    An error in the background is raised by the next call; nothing is written after it,
    and the last record stays.

    Args:
        inner: A store that outlives its process: a `DiskStore`, a `TieredStore` or a
            `CodecStore` of these, which then compresses in the background, too.
        buffer: The most bytes that wait to be written, or a text such as "2 GiB". By
            default twice the largest snapshot. What is larger than the buffer, such as
            a record of two states and a cotangent, waits alone; one snapshot that was
            read ahead comes on top.

    Raises:
        StoreError: If `inner` is no such store.

    Examples:
        >>> import tempfile
        >>> from retape import DiskStore
        >>> from retape.storage import AsyncStore, Place
        >>> with tempfile.TemporaryDirectory() as path:
        ...     store = AsyncStore(DiskStore(path))
        ...     _ = store.open("an example")
        ...     store.put(Place(7, 0, "disk"), (1, 2.5), 16)
        ...     found = store.get(Place(7, 0, "disk"))
        ...     store.close()
        >>> found
        (1, 2.5)
    """

    inner: SnapshotStore[C]
    buffer: int | str | None = None
    _thread: Background = field(init=False, repr=False)
    _sizes: dict[Key, int] = field(
        default_factory=dict[Key, int], init=False, repr=False
    )
    _kept: int = field(default=0, init=False, repr=False)
    _records: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        inner: Any = self.inner
        if isinstance(inner, AsyncStore) or not is_durable(inner):
            raise StoreError(
                f"`AsyncStore({inner!r})` is not valid: there is nothing to wait for. "
                "Pass a store that outlives its process, such as a `DiskStore`."
            )
        if inner.is_shared:
            raise StoreError(
                f"`AsyncStore({inner!r})` is not valid: its processes keep one run "
                "together, and each thread would come to it in its own time. Pass it "
                "as it is."
            )
        if self.buffer is not None:
            parse_bytes(self.buffer, "buffer")
        self._thread = Background(self.buffer)

    @property
    def gives_copies(self) -> bool:
        """What is put waits as it is: the driver has to copy it."""
        return False

    @property
    def reads_ahead(self) -> bool:
        return True

    @property
    def record_waits(self) -> bool:
        """Tell whether a record has not been written yet."""
        return self._records > 0

    def save(self, place: Place, nbytes: int) -> bool:
        self.flush()
        self._thread.forget_reads()
        return self.inner.save(place, nbytes)

    @property
    def peak_buffer(self) -> int:
        """The most bytes that waited to be written at once."""
        return self._thread.peak

    @property
    def nbytes(self) -> int:
        """The bytes of the snapshots held now."""
        return self._kept + sum(self._sizes.values())

    def open(self, label: str) -> Record | None:
        self._thread.end()
        record = self.inner.open(label)
        self._thread = Background(self.buffer)
        self._forget()
        return record

    def put(self, place: Place, capsule: C, nbytes: int) -> None:
        key, store = place.key, self.inner
        job = Job(
            f"step {place.step} could not be written",
            lambda: store.put(place, capsule, nbytes),
            nbytes,
            key,
            capsule,
        )
        self._thread.submit(job)
        self._sizes[key] = nbytes

    def get(self, place: Place) -> C:
        self.prefetch(place)
        return self._thread.take(place.key)

    def prefetch(self, place: Place) -> bool:
        """Begin to read a snapshot that `get` will ask for; true, since it does so."""
        store = self.inner
        self._thread.begin(place.key, lambda: store.get(place))
        return True

    def drop(self, place: Place) -> None:
        key, store = place.key, self.inner
        if key not in self._sizes:
            # Of an earlier process: the inner store alone knows how large it is.
            self.flush()
            store.drop(place)
            self._kept = self.inner.nbytes - sum(self._sizes.values())
            return
        del self._sizes[key]
        what = f"step {place.step} could not be dropped"
        self._thread.submit(Job(what, lambda: store.drop(place), key=key))

    def keep_only(self, steps: set[int], tapes: Set[int] = frozenset()) -> None:
        self.flush()
        self._thread.forget_reads()
        self.inner.keep_only(steps, tapes)
        self._forget()

    def record_due(self) -> bool:
        # While one waits there is no need of a second.
        return not self._records and self.inner.record_due()

    def record(self, record: Record) -> None:
        # The machine may go on to change the cotangent in place.
        kept = replace(record, cotangent=copy_tree(record.cotangent))
        nbytes = tree_nbytes(kept.cotangent)
        self._records += 1
        what = "the record could not be written"
        self._thread.submit(Job(what, lambda: self._write(kept), nbytes))

    def flush(self) -> None:
        """Wait until all is written.

        Raises:
            StoreError: If something could not be.
        """
        self._thread.check()
        self._thread.flush()
        self.inner.flush()

    def clear(self) -> None:
        """Remove all of the run's files, so that the next call begins anew."""
        self._thread.end()
        self._thread.error = None
        self.inner.clear()
        self._forget()

    def close(self) -> None:
        """Wait until all is written, and give the claim up; the files stay."""
        try:
            self._thread.end()
        finally:
            self.inner.close()
        self._thread.report()

    def _write(self, record: Record) -> None:
        self.inner.record(record)
        self._records -= 1

    def _forget(self) -> None:
        self._records = 0
        self._sizes.clear()
        self._kept = self.inner.nbytes


def _once_written(store: AsyncStore[Any]) -> SnapshotStore[Any]:
    """The store inside, when all is written."""
    store.flush()
    return store.inner


for _name in (
    *("peak_snapshots", "peak_bytes", "has", "has_room", "steps"),
    *("rewind", "forget_records"),
):
    setattr(AsyncStore, _name, answered_by(_once_written, _name))

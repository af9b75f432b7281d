"""The interface of a store that outlives its process."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard, TypeVar, runtime_checkable

from retape.storage._base import SnapshotStore

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Record:
    """The progress of a run, as a store keeps it.

    Attributes:
        length: The number of steps, or `None` if it is not known yet.
        left: Steps not reversed yet.
        cotangent: That of the state before step `left`; `None` if no step is reversed.
        label: What the run is, for refusing another one.
    """

    length: int | None
    left: int | None
    cotangent: Any
    label: str


@runtime_checkable
class DurableStore(SnapshotStore[C], Protocol[C]):
    """A store whose snapshots and record a later process finds again."""

    def open(self, label: str) -> Record | None:
        """Claim the store for the run `label`; give its record, if it has one.

        Raises:
            StoreError: If another process has it, or it holds another run.
        """
        ...

    def steps(self) -> set[int]:
        """The steps whose snapshots are there; tapes are not among them."""
        ...

    def keep_only(self, steps: set[int], tapes: Set[int] = frozenset()) -> None:
        """Remove all other snapshots and tapes, by the steps that they begin at."""
        ...

    def record_due(self) -> bool:
        """Tell whether a record should be written now."""
        ...

    def record(self, record: Record) -> None:
        """Write the record, whole or not at all; then free what was dropped.

        What was dropped since the last record is needed to go on from that one, so it
        is removed only when the next one is safe.
        """
        ...

    def clear(self) -> None:
        """Remove all of the run's files, so that the next call begins anew."""
        ...

    def close(self) -> None:
        """Give the claim up; the files stay."""
        ...


_METHODS = (
    *("put", "get", "drop", "open", "steps", "keep_only"),
    *("record_due", "record", "clear", "close"),
)


def is_durable(store: object) -> TypeGuard[DurableStore[Any]]:
    """Tell whether a store outlives its process, by its methods alone.

    Before Python 3.12 `isinstance` with a protocol reads the properties, too: the peaks
    of a store in the background wait for all that it has to do.

    Examples:
        >>> from retape.storage import DiskStore, MemoryStore
        >>> is_durable(DiskStore("somewhere")), is_durable(MemoryStore())
        (True, False)
    """
    return all(callable(getattr(store, name, None)) for name in _METHODS)

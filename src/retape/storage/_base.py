"""The interface of a store: each question that is asked of one, with its answer.

And a store around another one, which hands every question on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeAlias, TypeGuard, TypeVar

from retape._errors import SnapshotError, StoreError


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


C = TypeVar("C")

Key: TypeAlias = tuple[int, bool]
"""The step at which a snapshot begins, and whether it is a tape."""


class Place(NamedTuple):
    """Which snapshot: of what, and where a schedule puts it.

    Attributes:
        step: The step before which a state stands, or at which a tape begins.
        slot: The number of the slot, on its tier.
        tier: Its tier.
        tape: Whether it is the tape of a stage; otherwise it is a state.
    """

    step: int
    slot: int
    tier: str = "memory"
    tape: bool = False

    @property
    def key(self) -> Key:
        """What it is of: so another process knows it, which has other slots."""
        return self.step, self.tape

    @property
    def where(self) -> tuple[str, int]:
        """The tier and the slot, which holds one snapshot at a time."""
        return self.tier, self.slot


class AnotherRun(StoreError):
    """A store holds another run than the one that it was opened for.

    Attributes:
        is_done: Whether that run is done: the next one may take its place.
    """

    def __init__(self, text: str, is_done: bool = False) -> None:
        super().__init__(text)
        self.is_done = is_done


class SnapshotStore(Generic[C]):
    """Keeps capsules in slots of tiers. It knows no framework and no schedule.

    A store is a subclass with `put`, `get` and `drop`, and the most that it held in
    `peak_snapshots` and `peak_bytes`. All else that is asked of a store has an answer
    here, that of one which ends with its process; a store says otherwise where it is
    otherwise. What is put around another store is a `StoreWrapper`, which hands every
    question on. `retape.testing.check_store` tries the laws.

    A capsule is opaque, and so are its bytes, which the caller measures. Which one is
    meant a `Place` says: a store goes by its slot, or by the step that it is of. A slot
    must be empty before `put` and full before `get` and `drop`. Under a mixed plan it
    may hold the tape of a stage in the place of a capsule.

    A store that outlives its process has `is_durable`, and an answer to `open`,
    `steps`, `keep_only`, `record_due`, `record`, `clear` and `close`. It goes by
    `Place.key`, since the next process has other slots, and `keep_only` tells it what
    there is. What is dropped stays until the next `record`.

    Attributes:
        peak_snapshots: The most snapshots held at once.
        peak_bytes: The most bytes of snapshots held at once.
        nbytes: The bytes of the snapshots held now.

    Examples:
        >>> from retape.storage import SnapshotStore
        >>> from retape.testing import check_store
        >>> class Shelf(SnapshotStore):
        ...     def __init__(self):
        ...         self.held, self.nbytes = {}, 0
        ...     def put(self, place, capsule, nbytes):
        ...         self.held[place.where] = capsule, nbytes
        ...         self.nbytes += nbytes
        ...         self.peak_snapshots = max(self.peak_snapshots, len(self.held))
        ...         self.peak_bytes = max(self.peak_bytes, self.nbytes)
        ...     def get(self, place):
        ...         if place.where not in self.held:
        ...             raise retape.StoreError("the slot is empty")
        ...         return self.held[place.where][0]
        ...     def drop(self, place):
        ...         self.nbytes -= self.held.pop(place.where)[1]
        >>> import retape
        >>> len(check_store(Shelf))
        5
    """

    __slots__ = ()

    peak_snapshots: int = 0
    peak_bytes: int = 0
    nbytes: int = 0

    def put(self, place: Place, capsule: C, nbytes: int) -> None:
        """Keep a capsule. Raises `StoreError` if it cannot be kept."""
        raise NotImplementedError

    def get(self, place: Place) -> C:
        """Give a capsule back.

        Raises:
            SnapshotError: If it is not there, or damaged: it is made again, if it can.
            StoreError: If the run has to end.
        """
        raise NotImplementedError

    def drop(self, place: Place) -> None:
        """Free the slot."""
        raise NotImplementedError

    # What kind of store it is.

    @property
    def is_durable(self) -> bool:
        """Whether a later process finds its snapshots and its record again."""
        return False

    @property
    def gives_copies(self) -> bool:
        """Whether what `get` returns is nobody else's: the driver need not copy it."""
        return False

    @property
    def is_lossy(self) -> bool:
        """Whether what is given back is no more than near what was put."""
        return False

    @property
    def is_shared(self) -> bool:
        """Whether several processes keep one run in it."""
        return False

    def agree(self, said: bool) -> bool:
        """Whether all processes that keep the run in it say so."""
        return said

    @property
    def must_be_outermost(self) -> bool:
        """Whether what decides where a snapshot goes has to be inside of it."""
        return False

    @property
    def keeps_devices(self) -> bool:
        """Whether capsules may stay on their devices until they are written."""
        return False

    @property
    def needs_arrays(self) -> bool:
        """Whether capsules have to be trees of NumPy arrays."""
        return False

    @property
    def counts_other_bytes(self) -> bool:
        """Whether the bytes that it counts are not those that `put` was told."""
        return False

    # Room, and what a plan in bytes counts.

    def has_room(self, nbytes: int) -> bool:
        """Whether one more snapshot of this size would be within the capacities."""
        return True

    def capsule_bytes(self, capsule: C, nbytes: int) -> int:
        """What a plan in bytes should count for a capsule of so many bytes."""
        return nbytes

    def largest(self, nbytes: int | None) -> int | None:
        """The most bytes of any process, so that all make the same schedule."""
        return nbytes

    # Parts, for schedules that name several tiers.

    @property
    def parts(self) -> int:
        """The number of stores that it puts snapshots in."""
        return 1

    def name_tiers(self, tiers: Sequence[str]) -> None:
        """Take the tiers of a plan, the nearest first; none where none are told."""

    def claims(self) -> list[object]:
        """The stores that it consists of, itself among them, which a run claims."""
        return [self]

    def is_near(self, tier: str) -> bool:
        """Whether what a schedule puts on a tier goes to memory, if there is room."""
        return False

    def forget(self) -> None:
        """Drop what is lost with a process that ends, as if this were the next one."""

    @property
    def saves(self) -> bool:
        """Whether `save` may have something to move."""
        return False

    def save(self, place: Place, nbytes: int) -> bool:
        """Move a snapshot to where it outlives the process; whether it was moved.

        Raises:
            StoreError: If there is no room for it, or it cannot be written.
        """
        return False

    # Work in the background.

    @property
    def reads_ahead(self) -> bool:
        """Whether `prefetch` does something."""
        return False

    def prefetch(self, place: Place) -> bool:
        """Begin to read a snapshot that `get` will ask for; whether it does so."""
        return False

    def flush(self) -> None:
        """Wait until all is written. Raises `StoreError` if something could not be."""

    @property
    def record_waits(self) -> bool:
        """Whether a record has not been written yet."""
        return False

    # What outlives the process.

    def open(self, label: str) -> Record | None:
        """Claim the store for the run `label`; give its record, if it has one.

        Raises:
            AnotherRun: If it holds another run, which the error says the end of.
            StoreError: If another process has it.
        """
        raise _ends(self)

    def steps(self) -> set[int]:
        """The steps whose snapshots are there; tapes are not among them."""
        raise _ends(self)

    def has(self, place: Place) -> bool:
        """Whether a later process would find this state or tape, in whatever slot."""
        try:
            self.get(place)
        except SnapshotError:
            return False
        return True

    def keep_only(self, steps: set[int], tapes: Set[int] = frozenset()) -> None:
        """Remove all other snapshots and tapes, by the steps that they begin at."""
        raise _ends(self)

    def record_due(self) -> bool:
        """Whether a record should be written now."""
        raise _ends(self)

    def record(self, record: Record) -> None:
        """Write the record, whole or not at all; then free what was dropped.

        What was dropped since the last record is needed to go on from that one, so it
        is removed only when the next one is safe.
        """
        raise _ends(self)

    @property
    def keeps_records(self) -> bool:
        """Whether it keeps the record before the last one, too."""
        return False

    def rewind(self) -> Record | None:
        """Go back to the record before the last one; `None` if there is none."""
        raise _ends(self)

    def forget_records(self) -> None:
        """Go back to the beginning, with the snapshots that are there."""
        raise _ends(self)

    def clear(self) -> None:
        """Remove all that it holds, so that the next call begins anew."""
        raise _ends(self)

    def close(self) -> None:
        """Give the claim up; the files stay."""
        raise _ends(self)


class StoreWrapper(SnapshotStore[C]):
    """Hands all that is asked on to the store inside, `inner`.

    A subclass sets `inner`, and overrides what it changes. A question that a store is
    asked one day is answered by the one inside, whatever is put around it.

    Examples:
        >>> import retape
        >>> from retape.storage import Place, StoreWrapper
        >>> class Counting(StoreWrapper):
        ...     def __init__(self, inner):
        ...         self.inner, self.puts = inner, 0
        ...     def put(self, place, capsule, nbytes):
        ...         self.puts += 1
        ...         super().put(place, capsule, nbytes)
        >>> store = Counting(retape.MemoryStore(capacity=1))
        >>> store.put(Place(0, 0), "a state", 7)
        >>> store.puts, store.has_room(7), store.peak_bytes
        (1, False, 7)
    """

    __slots__ = ()

    inner: Any

    def claims(self) -> list[object]:
        return [self, *self.inner.claims()]


def answered_by(asked: Callable[[Any], Any], name: str) -> Any:
    """A question of a store's, answered by the store that `asked` finds in it."""
    if not callable(getattr(SnapshotStore, name)):
        return property(lambda self: getattr(asked(self), name))

    def answer(self: SnapshotStore[Any], *given: Any) -> Any:
        return getattr(asked(self), name)(*given)

    return answer


for _name in vars(SnapshotStore):
    if not _name.startswith("_") and _name not in vars(StoreWrapper):
        setattr(StoreWrapper, _name, answered_by(attrgetter("inner"), _name))


def is_durable(store: Any) -> TypeGuard[SnapshotStore[Any]]:
    """Tell whether this is a store that outlives its process.

    Examples:
        >>> from retape import DiskStore, MemoryStore
        >>> is_durable(DiskStore("somewhere")), is_durable(MemoryStore())
        (True, False)
    """
    return isinstance(store, SnapshotStore) and store.is_durable


def check_store_inside(wrapper: str, inner: Any) -> None:
    """Refuse to put something around what is no store.

    Raises:
        StoreError: If it is none.
    """
    if not isinstance(inner, SnapshotStore):
        raise StoreError(
            f"`{wrapper}({inner!r})` is not valid: that is not a store. Pass a store, "
            "such as a `DiskStore`; one of your own is a subclass of "
            "`retape.storage.SnapshotStore`."
        )


def _ends(store: object) -> StoreError:
    return StoreError(
        f"a `{type(store).__name__}` does not outlive its process, or keeps no record. "
        "Pass one that does, such as a `retape.DiskStore`."
    )

"""A store in memory: a dictionary with accounting."""

from dataclasses import dataclass, field
from typing import TypeVar

from retape._errors import StoreError
from retape.storage._base import Place, SnapshotStore
from retape.storage._capacity import check_capacities, check_room, fits

C = TypeVar("C")


@dataclass(slots=True)
class MemoryStore(SnapshotStore[C]):
    """Keeps capsules as they are, by reference, and counts their bytes.

    Args:
        capacity: The most snapshots to hold, or `None`.
        capacity_bytes: The most bytes, or a text such as "2 GiB", or `None`.

    Examples:
        >>> from retape import MemoryStore
        >>> from retape.storage import Place
        >>> store = MemoryStore()
        >>> store.put(Place(0, 0), "a state", 7)
        >>> store.get(Place(0, 0)), store.peak_bytes
        ('a state', 7)
    """

    capacity: int | None = None
    capacity_bytes: int | str | None = None
    peak_snapshots: int = field(default=0, init=False, repr=False)
    peak_bytes: int = field(default=0, init=False, repr=False)
    nbytes: int = field(default=0, init=False, repr=False)
    _slots: dict[tuple[str, int], tuple[int, C, int]] = field(
        default_factory=dict[tuple[str, int], tuple[int, C, int]],
        init=False,
        repr=False,
    )

    def __post_init__(self) -> None:
        self.capacity = check_capacities(self.capacity, self.capacity_bytes)

    def __len__(self) -> int:
        return len(self._slots)

    def clear(self) -> None:
        """Drop all snapshots."""
        self._slots.clear()
        self.nbytes = 0

    def forget(self) -> None:
        """All of it ends with the process."""
        self.clear()

    def has_room(self, nbytes: int) -> bool:
        """Whether one more snapshot of this size would be within both capacities."""
        return fits(self, len(self._slots) + 1, self.nbytes + nbytes)

    def put(self, place: Place, capsule: C, nbytes: int) -> None:
        step, slot, tier, _ = place
        held = self._slots.get(place.where)
        if held is not None:
            raise StoreError(
                f"slot {slot} on tier {tier!r} holds step {held[0]} and cannot take "
                f"step {step}. Drop it first."
            )
        check_room(
            self, "this `MemoryStore`", step, nbytes, len(self._slots), self.nbytes
        )
        self._slots[place.where] = (step, capsule, nbytes)
        self.nbytes += nbytes
        self.peak_snapshots = max(self.peak_snapshots, len(self._slots))
        self.peak_bytes = max(self.peak_bytes, self.nbytes)

    def get(self, place: Place) -> C:
        return self._held(place)[1]

    def drop(self, place: Place) -> None:
        self.nbytes -= self._held(place)[2]
        del self._slots[place.where]

    def _held(self, place: Place) -> tuple[int, C, int]:
        step, slot, tier, _ = place
        held = self._slots.get(place.where)
        if held is None or held[0] != step:
            what = "is empty" if held is None else f"holds step {held[0]}"
            raise StoreError(
                f"slot {slot} on tier {tier!r} {what}, and step {step} was asked for. "
                "The schedule and the store disagree."
            )
        return held

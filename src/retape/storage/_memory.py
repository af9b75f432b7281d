"""A store in memory: a dictionary with accounting."""

from dataclasses import dataclass, field
from typing import TypeVar

from retape._errors import StoreError
from retape.storage._base import SnapshotStore
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
        >>> store = MemoryStore()
        >>> store.put(0, 0, "memory", "a state", 7)
        >>> store.get(0, 0, "memory"), store.peak_bytes
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

    def put(
        self,
        step: int,
        slot: int,
        tier: str,
        capsule: C,
        nbytes: int,
        *,
        tape: bool = False,
    ) -> None:
        if (tier, slot) in self._slots:
            raise StoreError(
                f"slot {slot} on tier {tier!r} holds step {self._slots[tier, slot][0]} "
                f"and cannot take step {step}. Drop it first."
            )
        check_room(
            self, "this `MemoryStore`", step, nbytes, len(self._slots), self.nbytes
        )
        self._slots[tier, slot] = (step, capsule, nbytes)
        self.nbytes += nbytes
        self.peak_snapshots = max(self.peak_snapshots, len(self._slots))
        self.peak_bytes = max(self.peak_bytes, self.nbytes)

    def get(self, step: int, slot: int, tier: str, *, tape: bool = False) -> C:
        return self._held(step, slot, tier)[1]

    def drop(self, step: int, slot: int, tier: str, *, tape: bool = False) -> None:
        self.nbytes -= self._held(step, slot, tier)[2]
        del self._slots[tier, slot]

    def _held(self, step: int, slot: int, tier: str) -> tuple[int, C, int]:
        held = self._slots.get((tier, slot))
        if held is None or held[0] != step:
            what = "is empty" if held is None else f"holds step {held[0]}"
            raise StoreError(
                f"slot {slot} on tier {tier!r} {what}, and step {step} was asked for. "
                "The schedule and the store disagree."
            )
        return held

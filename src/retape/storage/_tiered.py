"""A store of two: memory first, disk after."""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from retape._errors import SnapshotError, StoreError
from retape.storage._disk import DiskStore
from retape.storage._durable import Record
from retape.storage._memory import MemoryStore

C = TypeVar("C")


@dataclass(slots=True)
class TieredStore(Generic[C]):
    """Puts a snapshot in memory while there is room, and on disk when there is not.

    A schedule that names the tier "disk" is obeyed; for one that knows a single tier
    the store decides. The memory part is lost when the process dies; what was in it is
    recomputed from the disk part.

    Args:
        memory: The part in memory, with its capacity.
        disk: The part on disk.

    Examples:
        >>> import tempfile
        >>> from retape.storage import DiskStore, MemoryStore, TieredStore
        >>> with tempfile.TemporaryDirectory() as path:
        ...     store = TieredStore(MemoryStore(capacity=1), DiskStore(path))
        ...     _ = store.open("an example")
        ...     store.put(0, 0, "memory", 1.5, 8)
        ...     store.put(3, 1, "memory", 2.5, 8)
        ...     sorted(store.steps())
        [3]
    """

    memory: MemoryStore[C]
    disk: DiskStore[C]
    peak_snapshots: int = field(default=0, init=False)
    peak_bytes: int = field(default=0, init=False)
    _place: dict[tuple[str, int], bool] = field(
        default_factory=dict[tuple[str, int], bool], init=False
    )

    def __post_init__(self) -> None:
        if not _in_order(self.memory, self.disk):
            raise StoreError(
                f"`TieredStore({self.memory!r}, {self.disk!r})` cannot be. Pass a "
                "`MemoryStore` first and a `DiskStore` after it."
            )

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
        on_disk = tier == "disk" or not self.memory.has_room(nbytes)
        store = self.disk if on_disk else self.memory
        store.put(step, slot, tier, capsule, nbytes, tape=tape)
        self._place[tier, slot] = on_disk
        self.peak_snapshots = max(self.peak_snapshots, len(self._place))
        held = self.memory.nbytes + self.disk.nbytes
        self.peak_bytes = max(self.peak_bytes, held)

    def get(self, step: int, slot: int, tier: str, *, tape: bool = False) -> C:
        on_disk = self._place.get((tier, slot))
        if on_disk is None:
            if self.disk.has(step, tape=tape):
                return self.disk.get(step, slot, tier, tape=tape)
            raise SnapshotError(
                f"step {step} was in memory when its process ended. Its state is "
                "recomputed from an earlier one."
            )
        store = self.disk if on_disk else self.memory
        return store.get(step, slot, tier, tape=tape)

    def drop(self, step: int, slot: int, tier: str, *, tape: bool = False) -> None:
        if self._place.pop((tier, slot), True):
            self.disk.drop(step, slot, tier, tape=tape)
        else:
            self.memory.drop(step, slot, tier, tape=tape)

    def open(self, label: str) -> Record | None:
        # What an earlier call has left in memory, when it ended early, is lost, too.
        self.memory.clear()
        self._place.clear()
        self.peak_snapshots = self.peak_bytes = 0
        return self.disk.open(label)

    def steps(self) -> set[int]:
        return self.disk.steps()

    def keep_only(self, steps: set[int], tapes: Set[int] = frozenset()) -> None:
        self.disk.keep_only(steps, tapes)

    def record_due(self) -> bool:
        return self.disk.record_due()

    def record(self, record: Record) -> None:
        self.disk.record(record)

    def clear(self) -> None:
        self.disk.clear()

    def close(self) -> None:
        self.disk.close()


def _in_order(memory: object, disk: object) -> bool:
    return isinstance(memory, MemoryStore) and isinstance(disk, DiskStore)

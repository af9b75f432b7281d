"""A store of several: what is near while there is room, what is far after."""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, TypeVar

from retape._errors import SnapshotError, StoreError
from retape.storage._base import (
    AnotherRun,
    Place,
    Record,
    SnapshotStore,
    is_durable,
)

C = TypeVar("C")


@dataclass(slots=True)
class TieredStore(SnapshotStore[C]):
    """Puts a snapshot in memory while there is room, and on disk when there is not.

    A schedule that names the tier "disk" is obeyed; for one that knows a single tier
    the store decides. The memory part is lost when the process dies; what was in it is
    recomputed from the disk part.

    Any number of tiers is a tiered store in a tiered store: memory before a disk with a
    capacity before a remote store. What outlives the process is found in all of them.
    A plan of as many tiers, `retape.tiers(levels=...)`, says what goes where; where a
    part is full all the same, the next one takes it.

    Args:
        memory: The part that is near, with its capacity: a `MemoryStore`, or a store on
            disk before one that is further away.
        disk: The part that is far: any store that outlives its process.

    Raises:
        StoreError: If the parts are not of these kinds.

    Examples:
        >>> import tempfile
        >>> from retape import DiskStore, MemoryStore, TieredStore
        >>> from retape.storage import Place
        >>> with tempfile.TemporaryDirectory() as path:
        ...     store = TieredStore(MemoryStore(capacity=1), DiskStore(path))
        ...     _ = store.open("an example")
        ...     store.put(Place(0, 0), 1.5, 8)
        ...     store.put(Place(3, 1), 2.5, 8)
        ...     sorted(store.steps())
        [3]
    """

    memory: SnapshotStore[C]
    disk: SnapshotStore[C]
    peak_snapshots: int = field(default=0, init=False, repr=False)
    peak_bytes: int = field(default=0, init=False, repr=False)
    _is_far: dict[tuple[str, int], bool] = field(
        default_factory=dict[tuple[str, int], bool], init=False, repr=False
    )
    _durable: list[Any] = field(init=False, repr=False, compare=False)
    _far_tiers: frozenset[str] = field(
        default=frozenset(), init=False, repr=False, compare=False
    )
    _near_tiers: frozenset[str] = field(
        default=frozenset(), init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        known = all(isinstance(part, SnapshotStore) for part in self._parts())
        if not known or not is_durable(self.disk) or self.must_be_outermost:
            raise StoreError(
                f"`TieredStore({self.memory!r}, {self.disk!r})` is not valid. Pass a "
                "`MemoryStore` first, or another store with a capacity, and after it "
                "one that outlives the process, such as a `DiskStore`."
            )
        # Asked once: what is asked at every action takes as long as a small step.
        self._durable = [part for part in self._parts() if is_durable(part)]

    @property
    def is_durable(self) -> bool:
        return True

    def agree(self, said: bool) -> bool:
        return all([part.agree(said) for part in self._durable])

    @property
    def keeps_devices(self) -> bool:
        """Whether capsules may stay on their devices in every part."""
        return all(part.keeps_devices for part in self._durable)

    def capsule_bytes(self, capsule: C, nbytes: int) -> int:
        """The most that a part counts for a capsule."""
        return max(part.capsule_bytes(capsule, nbytes) for part in self._parts())

    def claims(self) -> list[object]:
        return [self, *(each for part in self._parts() for each in part.claims())]

    def forget(self) -> None:
        for part in self._parts():
            part.forget()

    def flush(self) -> None:
        for part in self._parts():
            part.flush()

    @property
    def nbytes(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The bytes of the snapshots held now."""
        return sum(part.nbytes for part in self._parts())

    def has_room(self, nbytes: int) -> bool:
        """Tell whether there is room for one more snapshot of this size."""
        return any(part.has_room(nbytes) for part in self._parts())

    def has(self, place: Place) -> bool:
        """Tell whether a later process would find this state or tape."""
        return any(part.has(place) for part in self._durable)

    def put(self, place: Place, capsule: C, nbytes: int) -> None:
        is_far = self._wants_far(place.tier) or not self.memory.has_room(nbytes)
        self._part(is_far).put(place, capsule, nbytes)
        self._is_far[place.where] = is_far
        self.peak_snapshots = max(self.peak_snapshots, len(self._is_far))
        self.peak_bytes = max(self.peak_bytes, self.nbytes)

    def get(self, place: Place) -> C:
        return self._holder(place).get(place)

    def prefetch(self, place: Place) -> bool:
        """Tell the part that holds a snapshot of a read; whether it reads ahead."""
        return self._part(self._is_far.get(place.where, True)).prefetch(place)

    @property
    def saves(self) -> bool:
        return self._in_memory or any(part.saves for part in self._parts())

    def save(self, place: Place, nbytes: int) -> bool:
        """Move a snapshot to where it outlives the process; whether it was moved.

        Raises:
            StoreError: If the far part has no room for it, or cannot write.
        """
        is_far = self._is_far.get(place.where, True)
        if is_far or not self._in_memory:
            return self._part(is_far).save(place, nbytes)
        capsule = self.memory.get(place)
        self.disk.put(place, capsule, nbytes)
        self.memory.drop(place)
        self._is_far[place.where] = True
        self.disk.save(place, nbytes)
        return True

    def is_near(self, tier: str) -> bool:
        """Whether what a schedule puts on a tier goes to memory, if there is room."""
        return self._in_memory and not self._wants_far(tier)

    @property
    def parts(self) -> int:
        return self.memory.parts + self.disk.parts

    def name_tiers(self, tiers: Sequence[str]) -> None:
        """Take the tiers of a plan: the near part has as many as it has parts."""
        near, far = tiers[: self.memory.parts], tiers[self.memory.parts :]
        self._near_tiers, self._far_tiers = frozenset(near), frozenset(far)
        self.memory.name_tiers(near)
        self.disk.name_tiers(far)

    def _wants_far(self, tier: str) -> bool:
        """Tell whether a schedule's tier is the far part's."""
        if tier in self._near_tiers or tier in self._far_tiers:
            return tier in self._far_tiers
        return tier == "disk" and self._in_memory

    def drop(self, place: Place) -> None:
        is_far = self._is_far.pop(place.where, None)
        if is_far is None:
            found = [part for part in self._durable if part.has(place)]
            part = found[0] if found else self.disk
        else:
            part = self._part(is_far)
        part.drop(place)

    def open(self, label: str) -> Record | None:
        # What an earlier call has left in memory, when it ended early, is lost, too.
        if self._in_memory:
            self.memory.forget()
        self._is_far.clear()
        self.peak_snapshots = self.peak_bytes = 0
        opened: list[Any] = []
        records: list[Record] = []
        others: list[AnotherRun] = []
        try:
            for part in self._durable:
                try:
                    record = part.open(label)
                except AnotherRun as error:
                    others.append(error)
                    continue
                opened.append(part)
                records += [record] if record is not None else []
            if others:
                # One that is not done goes before one that is.
                raise min(others, key=lambda error: error.is_done)
        except BaseException:
            for part in opened:
                part.close()
            raise
        # A part may have been lost with its machine: any record is one to go on from.
        return min(records, key=_left, default=None)

    def steps(self) -> set[int]:
        return set[int]().union(*(part.steps() for part in self._durable))

    def keep_only(self, steps: set[int], tapes: Set[int] = frozenset()) -> None:
        for part in self._durable:
            part.keep_only(steps, tapes)

    def record_due(self) -> bool:
        return any(part.record_due() for part in self._durable)

    def record(self, record: Record) -> None:
        first, *others = self._durable
        first.record(record)
        for part in others:
            if record.left == 0 or part.record_due():
                part.record(record)

    def clear(self) -> None:
        for part in self._durable:
            part.clear()

    def close(self) -> None:
        first, *others = self._durable
        try:
            first.close()
        finally:
            for part in others:
                part.close()

    def _holder(self, place: Place) -> Any:
        """The part that holds a snapshot, of this process or an earlier one."""
        is_far = self._is_far.get(place.where)
        if is_far is not None:
            return self._part(is_far)
        for part in self._durable:
            if part.has(place):
                return part
        raise SnapshotError(
            f"step {place.step} was in memory when its process ended. Its state is "
            "recomputed from an earlier one."
        )

    def _part(self, is_far: bool) -> Any:
        return self.disk if is_far else self.memory

    def _parts(self) -> list[Any]:
        return [self.memory, self.disk]

    @property
    def _in_memory(self) -> bool:
        """Whether the near part is lost with the process."""
        return len(self._durable) == 1


def _answered(name: str, of_parts: Callable[[Iterator[bool]], bool]) -> Any:
    """A question about a store, as its parts answer it together."""

    def answer(self: Any) -> bool:
        return of_parts(getattr(part, name) for part in (self.memory, self.disk))

    return property(answer)


_ANSWERS: dict[str, Callable[[Iterator[bool]], bool]] = {
    "gives_copies": all,
    **dict.fromkeys(
        (
            *("is_lossy", "is_shared", "must_be_outermost", "needs_arrays"),
            *("counts_other_bytes", "reads_ahead", "record_waits"),
        ),
        any,
    ),
}
for _name, _of_parts in _ANSWERS.items():
    setattr(TieredStore, _name, _answered(_name, _of_parts))


def name_tiers(store: SnapshotStore[Any], tiers: Sequence[str]) -> None:
    """Tell a store of several parts the tiers of a plan, the nearest first.

    A store of one kind keeps all of them. Without tiers the parts decide as they did.

    Raises:
        StoreError: If there are more tiers than parts, or fewer.
    """
    if tiers and store.parts not in (1, len(tiers)):
        raise StoreError(
            f"the plan has {len(tiers)} tiers ({', '.join(tiers)}), and `store="
            f"{store!r}` has {store.parts} parts. Pass one of as many parts, the "
            "nearest first, as in `TieredStore(near, TieredStore(next, far))`, or a "
            "store of one kind, which keeps all tiers."
        )
    store.name_tiers(tiers)


def _left(record: Record) -> float:
    return float("inf") if record.left is None else record.left

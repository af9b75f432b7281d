"""A store of several: what is near while there is room, what is far after."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from retape._errors import SnapshotError, StoreError
from retape.storage._base import SnapshotStore
from retape.storage._durable import DurableStore, Record, is_durable
from retape.storage._memory import MemoryStore

C = TypeVar("C")


@dataclass(slots=True)
class TieredStore(Generic[C]):
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
        >>> from retape.storage import DiskStore, MemoryStore, TieredStore
        >>> with tempfile.TemporaryDirectory() as path:
        ...     store = TieredStore(MemoryStore(capacity=1), DiskStore(path))
        ...     _ = store.open("an example")
        ...     store.put(0, 0, "memory", 1.5, 8)
        ...     store.put(3, 1, "memory", 2.5, 8)
        ...     sorted(store.steps())
        [3]
    """

    memory: SnapshotStore[C]
    disk: DurableStore[C]
    peak_snapshots: int = field(default=0, init=False, repr=False)
    peak_bytes: int = field(default=0, init=False, repr=False)
    _place: dict[tuple[str, int], bool] = field(
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
        if not _in_order(self.memory, self.disk):
            raise StoreError(
                f"`TieredStore({self.memory!r}, {self.disk!r})` cannot be. Pass a "
                "`MemoryStore` first, or another store with a capacity, and after it "
                "one that outlives the process, such as a `DiskStore`."
            )
        # Asked once: what is asked at every action takes as long as a small step.
        self._durable = [part for part in self._parts() if is_durable(part)]

    @property
    def is_lossy(self) -> bool:
        """Tell whether what is given back is no more than near what was put."""
        return any(getattr(part, "is_lossy", False) for part in self._parts())

    @property
    def is_shared(self) -> bool:
        """Tell whether several processes keep one run in it."""
        return any(getattr(part, "is_shared", False) for part in self._durable)

    @property
    def keeps_devices(self) -> bool:
        """Tell whether capsules may stay on their devices in every part."""
        return all(getattr(part, "keeps_devices", False) for part in self._durable)

    @property
    def capsule_bytes(self) -> Any:
        """The most that a part counts for a capsule, if all of them pack."""
        counts = [part.capsule_bytes for part in self._parts()]
        return lambda capsule, nbytes: max(f(capsule, nbytes) for f in counts)  # pyright: ignore

    @property
    def nbytes(self) -> int:
        """The bytes of the snapshots held now."""
        return sum(part.nbytes for part in self._parts())

    def has_room(self, nbytes: int) -> bool:
        """Tell whether there is room for one more snapshot of this size."""
        return any(part.has_room(nbytes) for part in self._parts())

    def has(self, step: int, *, tape: bool = False) -> bool:
        """Tell whether a later process would find this state or tape."""
        return any(part.has(step, tape=tape) for part in self._durable)

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
        near: Any = self.memory
        is_far = self._wants_far(tier) or not near.has_room(nbytes)
        self._part(is_far).put(step, slot, tier, capsule, nbytes, tape=tape)
        self._place[tier, slot] = is_far
        self.peak_snapshots = max(self.peak_snapshots, len(self._place))
        self.peak_bytes = max(self.peak_bytes, self.nbytes)

    def get(self, step: int, slot: int, tier: str, *, tape: bool = False) -> C:
        return self._holder(step, slot, tier, tape).get(step, slot, tier, tape=tape)

    def prefetch(self, step: int, slot: int, tier: str, *, tape: bool = False) -> bool:
        """Tell the part that holds a snapshot of a read; whether it reads ahead."""
        part = self._part(self._place.get((tier, slot), True))
        tell = getattr(part, "prefetch", None)
        return tell is not None and tell(step, slot, tier, tape=tape)

    def save(
        self, step: int, slot: int, tier: str, nbytes: int, *, tape: bool = False
    ) -> bool:
        """Move a snapshot to where it outlives the process; whether it was moved.

        Raises:
            StoreError: If the far part has no room for it, or cannot write.
        """
        is_far = self._place.get((tier, slot), True)
        if is_far or not self._in_memory:
            return _saved(self._part(is_far), step, slot, tier, nbytes, tape)
        capsule = self.memory.get(step, slot, tier, tape=tape)
        self.disk.put(step, slot, tier, capsule, nbytes, tape=tape)
        self.memory.drop(step, slot, tier, tape=tape)
        self._place[tier, slot] = True
        _saved(self.disk, step, slot, tier, nbytes, tape)
        return True

    def is_near(self, tier: str) -> bool:
        """Whether what a schedule puts on a tier goes to memory, if there is room."""
        return self._in_memory and not self._wants_far(tier)

    def name_tiers(self, near: Sequence[str], far: Sequence[str]) -> None:
        """Take the tiers of a plan that each part is for; none where none are told."""
        self._near_tiers, self._far_tiers = frozenset(near), frozenset(far)

    def _wants_far(self, tier: str) -> bool:
        """Tell whether a schedule's tier is the far part's."""
        if tier in self._near_tiers or tier in self._far_tiers:
            return tier in self._far_tiers
        return tier == "disk" and self._in_memory

    def drop(self, step: int, slot: int, tier: str, *, tape: bool = False) -> None:
        is_far = self._place.pop((tier, slot), None)
        if is_far is None:
            found = [part for part in self._durable if part.has(step, tape=tape)]
            part = found[0] if found else self.disk
        else:
            part = self._part(is_far)
        part.drop(step, slot, tier, tape=tape)

    def open(self, label: str) -> Record | None:
        # What an earlier call has left in memory, when it ended early, is lost, too.
        if isinstance(self.memory, MemoryStore):
            self.memory.clear()
        self._place.clear()
        self.peak_snapshots = self.peak_bytes = 0
        opened: list[Any] = []
        records: list[Record] = []
        try:
            for part in self._durable:
                record = part.open(label)
                opened.append(part)
                records += [record] if record is not None else []
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

    def _holder(self, step: int, slot: int, tier: str, tape: bool) -> Any:
        """The part that holds a snapshot, of this process or an earlier one."""
        is_far = self._place.get((tier, slot))
        if is_far is not None:
            return self._part(is_far)
        for part in self._durable:
            if part.has(step, tape=tape):
                return part
        raise SnapshotError(
            f"step {step} was in memory when its process ended. Its state is "
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


def _saved(part: Any, step: int, slot: int, tier: str, nbytes: int, tape: bool) -> bool:
    """Have a part that consists of parts itself move a snapshot; whether it did."""
    save = getattr(part, "save", None)
    return save is not None and save(step, slot, tier, nbytes, tape=tape)


def parts_of(store: object) -> int:
    """The number of stores that a store of several puts snapshots in.

    Examples:
        >>> from retape.storage import DiskStore, MemoryStore, TieredStore
        >>> disks = TieredStore(DiskStore("near", capacity=9), DiskStore("far"))
        >>> parts_of(TieredStore(MemoryStore(capacity=3), disks))
        3
    """
    parts = _parts(store)
    if parts is not None:
        return parts_of(parts.memory) + parts_of(parts.disk)
    inner = _inside(store)
    return 1 if inner is None else parts_of(inner)


def name_tiers(store: object, tiers: Sequence[str]) -> None:
    """Tell a store of several parts the tiers of a plan, the nearest first.

    A store of one kind keeps all of them. Without tiers the parts decide as they did.

    Raises:
        StoreError: If there are more tiers than parts, or fewer.
    """
    parts = parts_of(store)
    if tiers and parts not in (1, len(tiers)):
        raise StoreError(
            f"the plan has {len(tiers)} tiers ({', '.join(tiers)}), and `store="
            f"{store!r}` has {parts} parts. Pass one of as many parts, the nearest "
            "first, as in `TieredStore(near, TieredStore(next, far))`, or a store of "
            "one kind, which keeps all tiers."
        )
    _name(store, tiers)


def _name(store: object, tiers: Sequence[str]) -> None:
    parts = _parts(store)
    if parts is None:
        inner = _inside(store)
        if inner is not None:
            _name(inner, tiers)
        return
    near = parts_of(parts.memory)
    parts.name_tiers(tiers[:near], tiers[near:])
    _name(parts.memory, tiers[:near])
    _name(parts.disk, tiers[near:])


def _parts(store: object) -> TieredStore[Any] | None:
    return cast("TieredStore[Any]", store) if isinstance(store, TieredStore) else None


def _inside(store: object) -> object:
    """The store that another one wraps, which keeps what it is given."""
    inner = getattr(store, "inner", None)
    return getattr(store, "store", None) if inner is None else inner


def _left(record: Record) -> float:
    return float("inf") if record.left is None else record.left


def _in_order(near: Any, far: Any) -> bool:
    """Tell whether it can be told if the first is full, and the second outlives it."""
    if isinstance(near, type) or isinstance(far, type):
        return False
    known = all(hasattr(far, name) for name in ("has", "nbytes"))
    return hasattr(near, "has_room") and is_durable(far) and known

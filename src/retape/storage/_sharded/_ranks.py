"""Several processes that run one program together (MPI): all resume from one record.

Each rank writes its own part of every state into a store of its own. What has to be
agreed is when: the ranks exchange messages inside a step, so they must run the same
steps in the same order, also after a crash and also where one of them cannot read a
file. So whatever decides what is run next is decided together:

- the record: the next one is written only when all have written the last, so ranks that
  are killed at any time differ by one at most, and each has kept two;
- the states that are there: those that all ranks have;
- whether a state could be written or read: if one rank cannot, no rank can.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeVar

from retape._errors import StoreError
from retape._warn import warn
from retape.storage._base import (
    AnotherRun,
    Place,
    Record,
    SnapshotStore,
    StoreWrapper,
    check_store_inside,
)
from retape.storage._sharded._group import Communicator, Group, unlike

C = TypeVar("C")
T = TypeVar("T")


class _Point(NamedTuple):
    """How far a record says that a run had come: the later, the greater."""

    turned: bool
    reversed: int
    measured: bool


@dataclass(slots=True)
class RankStore(StoreWrapper[C]):
    """One rank's part of a run of several processes, in a durable store of its own.

    All ranks make one, each over a directory of its own, and call `retape.adjoint` with
    the same number of steps and the same plan. A rank that dies takes nothing with it
    but the time since the last record: all ranks go on from the same one.

    Args:
        inner: The store of this rank: a `DiskStore`, or an `AsyncStore` or a
            `CodecStore` around one.
        comm: `mpi4py.MPI.COMM_WORLD`, or any object with its `Get_rank`, `Get_size` and
            `allgather`.

    Raises:
        StoreError: If `inner` keeps no earlier record or `comm` is no communicator;
            when used, if the ranks disagree about the plan, the number of ranks or what
            is kept when, or if one of them cannot write.

    Examples:
        >>> import tempfile
        >>> from retape import DiskStore
        >>> from retape.storage import Place, RankStore
        >>> class Alone:
        ...     def Get_rank(self): return 0
        ...     def Get_size(self): return 1
        ...     def allgather(self, sendobj): return [sendobj]
        >>> with tempfile.TemporaryDirectory() as path:
        ...     store = RankStore(DiskStore(path), Alone())
        ...     _ = store.open("an example")
        ...     store.put(Place(0, 0, "disk"), 1.5, 8)
        ...     sorted(store.steps())
        [0]
    """

    inner: SnapshotStore[C]
    comm: Communicator
    _group: Group = field(init=False, repr=False)
    _label: str = field(default="", init=False, repr=False)
    _failed: StoreError | None = field(default=None, init=False, repr=False)
    _written: _Point | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_store_inside("RankStore", self.inner)
        if self.inner.must_be_outermost or not self.inner.keeps_records:
            raise StoreError(
                f"`RankStore({self.inner!r})` is not valid: ranks that died at "
                "different "
                "times must go back to an earlier record that all have, and that store "
                "keeps none of its own. Pass a `DiskStore` with a directory of this "
                "rank's own."
            )
        asked = ("Get_rank", "Get_size", "allgather")
        if not all(callable(getattr(self.comm, name, None)) for name in asked):
            raise StoreError(
                f"`comm={self.comm!r}` is not a communicator. Pass "
                "`mpi4py.MPI.COMM_WORLD`, or an object with `Get_rank`, `Get_size` and "
                "`allgather`."
            )
        self._group = Group(self.comm, "rank")

    @property
    def is_shared(self) -> bool:
        """Several processes keep one run in it."""
        return True

    @property
    def must_be_outermost(self) -> bool:
        """What a rank decides alone would be another thing in another rank."""
        return True

    def agree(self, said: bool) -> bool:
        return self._group.agree(said)

    def has_room(self, nbytes: int) -> bool:
        return self.agree(self.inner.has_room(nbytes))

    def has(self, place: Place) -> bool:
        return self.agree(self.inner.has(place))

    def flush(self) -> None:
        self._together("write what waits", self.inner.flush)

    def largest(self, nbytes: int | None) -> int | None:
        """The most bytes of any rank, so that all make the same schedule."""
        found = self._group.heard(nbytes)
        return None if None in found else max(each or 0 for each in found)

    def open(self, label: str) -> Record | None:
        self._refuse_another_plan(label)
        rank, size = self.comm.Get_rank(), self.comm.Get_size()
        self._label = f"{label}\nrank {rank} of {size}"
        self._written, self._failed = None, None
        record = self._opened()
        points = self._group.heard(_point(record))
        if len(set(points)) > 1:
            # Those that are ahead by a record go back to the one before.
            ahead = _point(record) > min(points)
            back = self.inner.rewind if ahead else lambda: record
            record = self._together("go back to its earlier record", back)
            points = self._group.heard(_point(record))
        if len(set(points)) > 1:
            # A rank has lost both: cotangents are gone there, and states may not be.
            warn(
                f"`{self.inner!r}`: the ranks have no record in common. The run goes "
                "on from the snapshots that all of them have, and what was reversed is "
                "reversed again."
            )
            record = self._together("forget its records", self.inner.forget_records)
        return None if record is None else replace(record, label=label)

    def _opened(self) -> Record | None:
        """The record of this rank; a run is done if it is for all of them."""
        other: AnotherRun | None = None

        def attempt() -> Record | None:
            nonlocal other
            try:
                return self.inner.open(self._label)
            except AnotherRun as error:
                other = error
                return None

        record = self._together("open its directory", attempt)
        mine = None if other is None else (str(other), other.is_done)
        found = self._group.heard(mine)
        said = [each for each in found if each is not None]
        if said:
            if other is None:
                self.inner.close()
            text, _ = min(said, key=lambda each: each[1])
            raise AnotherRun(text, all(is_done for _, is_done in said))
        return record

    def steps(self) -> set[int]:
        found = self._group.heard(self.inner.steps())
        return set[int].intersection(*found)

    def put(self, place: Place, capsule: C, nbytes: int) -> None:
        self._same("keeps", place)
        put = partial(self.inner.put, place, capsule, nbytes)
        self._together(f"keep step {place.step}", put)

    def get(self, place: Place) -> C:
        self._same("reads", place)
        get = partial(self.inner.get, place)
        return self._together(f"read step {place.step}", get)

    def drop(self, place: Place) -> None:
        try:
            self.inner.drop(place)
        except StoreError as error:
            # Of a write in the background: the others hear of it next.
            self._failed = error

    def record_due(self) -> bool:
        # One that waits in the background has not been written: no rank goes on to
        # the next, so that they differ by one at most.
        found = self._group.heard((self.inner.record_due(), self.inner.record_waits))
        due, waiting = zip(*found, strict=True)
        return any(due) and not any(waiting)

    def record(self, record: Record) -> None:
        """Write a record, which all ranks write: those of the turn and the end, too."""
        point = _point(record)
        if point == self._written:
            return
        if record.left in (None, 0):  # It was not due: the last one may wait still.
            self.flush()
        kept = replace(record, label=self._label)
        self._together("write its record", partial(self.inner.record, kept))
        self._written = point

    def _refuse_another_plan(self, label: str) -> None:
        heads = self._group.heard(label.partition("\n")[0])
        if (other := unlike(heads)) is not None:
            raise StoreError(
                f"the ranks disagree about the run: rank 0 runs `{heads[0]}` and "
                f"rank {other[0]} runs `{other[1]}`. Pass the same plan on all of them."
            )

    def _same(self, does: str, place: Place) -> None:
        """Refuse ranks that go different ways."""
        places = self._group.heard(place.key)
        if (other := unlike(places)) is not None:
            rank, key = other
            raise StoreError(
                f"the ranks disagree about the schedule: rank 0 {does} step "
                f"{places[0][0]} and rank {rank} step {key[0]}. Pass the same "
                "number of steps and the same plan on all of them, and let `done` "
                "be true at the same step."
            )

    def _together(self, doing: str, call: Callable[[], T]) -> T:
        """Call, and fail where any rank fails."""
        error, self._failed = self._failed, None
        return self._group.together(call, doing, failed=error)[0]


def _point(record: Record | None) -> _Point:
    if record is None:
        return _Point(False, 0, False)
    left, length = record.left, record.length
    return _Point(left is not None, -(left or 0), length is not None)

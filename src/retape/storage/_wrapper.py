"""A store around another one: every question is handed on, and some are changed."""

# A property takes the place of what a plain store has as attributes.
# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, TypeVar

from retape.storage._base import SnapshotStore
from retape.storage._record import Record

C = TypeVar("C")


class StoreWrapper(SnapshotStore[C]):
    """Hands all that is asked on to the store inside, `inner`.

    A subclass sets `inner`, and overrides what it changes. A question that a store is
    asked one day is answered by the one inside, whatever is put around it.

    Examples:
        >>> import retape
        >>> from retape.storage import StoreWrapper
        >>> class Counting(StoreWrapper):
        ...     def __init__(self, inner):
        ...         self.inner, self.puts = inner, 0
        ...     def put(self, *place, **named):
        ...         self.puts += 1
        ...         super().put(*place, **named)
        >>> store = Counting(retape.MemoryStore(capacity=1))
        >>> store.put(0, 0, "memory", "a state", 7)
        >>> store.puts, store.has_room(7), store.peak_bytes
        (1, False, 7)
    """

    __slots__ = ()

    inner: Any

    @property
    def peak_snapshots(self) -> int:
        return self.inner.peak_snapshots

    @property
    def peak_bytes(self) -> int:
        return self.inner.peak_bytes

    @property
    def nbytes(self) -> int:
        return self.inner.nbytes

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
        self.inner.put(step, slot, tier, capsule, nbytes, tape=tape)

    def get(self, step: int, slot: int, tier: str, *, tape: bool = False) -> C:
        return self.inner.get(step, slot, tier, tape=tape)

    def drop(self, step: int, slot: int, tier: str, *, tape: bool = False) -> None:
        self.inner.drop(step, slot, tier, tape=tape)

    @property
    def is_durable(self) -> bool:
        return self.inner.is_durable

    @property
    def gives_copies(self) -> bool:
        return self.inner.gives_copies

    @property
    def is_lossy(self) -> bool:
        return self.inner.is_lossy

    @property
    def is_shared(self) -> bool:
        return self.inner.is_shared

    def agree(self, said: bool) -> bool:
        return self.inner.agree(said)

    @property
    def must_be_outermost(self) -> bool:
        return self.inner.must_be_outermost

    @property
    def keeps_devices(self) -> bool:
        return self.inner.keeps_devices

    @property
    def needs_arrays(self) -> bool:
        return self.inner.needs_arrays

    @property
    def packs(self) -> bool:
        return self.inner.packs

    @property
    def counts_other_bytes(self) -> bool:
        return self.inner.counts_other_bytes

    def has_room(self, nbytes: int) -> bool:
        return self.inner.has_room(nbytes)

    def capsule_bytes(self, capsule: C, nbytes: int) -> int:
        return self.inner.capsule_bytes(capsule, nbytes)

    def largest(self, nbytes: int | None) -> int | None:
        return self.inner.largest(nbytes)

    @property
    def parts(self) -> int:
        return self.inner.parts

    def name_tiers(self, tiers: Sequence[str]) -> None:
        self.inner.name_tiers(tiers)

    def claims(self) -> list[object]:
        return [self, *self.inner.claims()]

    def is_near(self, tier: str) -> bool:
        return self.inner.is_near(tier)

    def forget(self) -> None:
        self.inner.forget()

    @property
    def saves(self) -> bool:
        return self.inner.saves

    def save(
        self, step: int, slot: int, tier: str, nbytes: int, *, tape: bool = False
    ) -> bool:
        return self.inner.save(step, slot, tier, nbytes, tape=tape)

    @property
    def reads_ahead(self) -> bool:
        return self.inner.reads_ahead

    def prefetch(self, step: int, slot: int, tier: str, *, tape: bool = False) -> bool:
        return self.inner.prefetch(step, slot, tier, tape=tape)

    def flush(self) -> None:
        self.inner.flush()

    @property
    def record_waits(self) -> bool:
        return self.inner.record_waits

    def open(self, label: str) -> Record | None:
        return self.inner.open(label)

    def steps(self) -> set[int]:
        return self.inner.steps()

    def has(self, step: int, *, tape: bool = False) -> bool:
        return self.inner.has(step, tape=tape)

    def keep_only(self, steps: set[int], tapes: Set[int] = frozenset()) -> None:
        self.inner.keep_only(steps, tapes)

    def record_due(self) -> bool:
        return self.inner.record_due()

    def record(self, record: Record) -> None:
        self.inner.record(record)

    @property
    def keeps_records(self) -> bool:
        return self.inner.keeps_records

    def rewind(self) -> Record | None:
        return self.inner.rewind()

    def forget_records(self) -> None:
        self.inner.forget_records()

    def clear(self) -> None:
        self.inner.clear()

    def close(self) -> None:
        self.inner.close()

"""A store around another one: every question is handed on, and some are changed."""

from __future__ import annotations

from typing import Any, TypeVar

from retape.storage._base import SnapshotStore

C = TypeVar("C")


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


def _handed_on(name: str) -> Any:
    """A question of a store's, as the store inside answers it."""
    if not callable(getattr(SnapshotStore, name)):
        return property(lambda self: getattr(self.inner, name))

    def asked(self: StoreWrapper[Any], *given: Any) -> Any:
        return getattr(self.inner, name)(*given)

    return asked


for _name in vars(SnapshotStore):
    if not _name.startswith("_") and _name not in vars(StoreWrapper):
        setattr(StoreWrapper, _name, _handed_on(_name))

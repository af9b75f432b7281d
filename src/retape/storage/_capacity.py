"""Capacities of a store: a number of snapshots, a number of bytes, or none."""

from typing import Protocol

from retape._arguments import integer_of
from retape._bytes import format_bytes, parse_bytes
from retape._errors import StoreError


class Bounded(Protocol):
    """A store with capacities, `None` for no bound."""

    @property
    def capacity(self) -> int | None: ...
    @property
    def capacity_bytes(self) -> int | str | None: ...


def check_capacities(capacity: object, capacity_bytes: int | str | None) -> int | None:
    """Refuse capacities that cannot be, when a store is made; NumPy's integers can."""
    count = integer_of(capacity)
    if capacity is not None and (count is None or count < 0):
        raise StoreError(
            f"`capacity={capacity!r}` is not valid: it is a number of snapshots. Pass "
            'an integer, or bytes as `capacity_bytes="2 GiB"`.'
        )
    if capacity_bytes is not None:
        parse_bytes(capacity_bytes, "capacity_bytes")
    return count


def fits(store: Bounded, count: int, nbytes: int) -> bool:
    """Tell whether so many snapshots of so many bytes are within the capacities."""
    return (store.capacity is None or count <= store.capacity) and (
        store.capacity_bytes is None
        or nbytes <= parse_bytes(store.capacity_bytes, "capacity_bytes")
    )


def check_room(
    store: Bounded, name: str, step: int, nbytes: int, count: int, held: int
) -> None:
    """Refuse a snapshot beyond the capacities.

    Args:
        store: The capacities.
        name: The store, for the error.
        step: The snapshot's step.
        nbytes: Its bytes.
        count: Snapshots held.
        held: Their bytes.

    Raises:
        StoreError: If one more would be too many, or too large.
    """
    if store.capacity is not None and count >= store.capacity:
        raise StoreError(
            f"step {step} would be snapshot {count + 1} in {name}, which has "
            f"`capacity={store.capacity}`. Use a plan with fewer snapshots."
        )
    if not fits(store, count + 1, held + nbytes):
        raise StoreError(
            f"step {step} needs {format_bytes(nbytes)} beside the "
            f"{format_bytes(held)} in {name}, and `capacity_bytes` is "
            f"{store.capacity_bytes}. Use a plan with fewer snapshots."
        )


def check_held(store: Bounded, name: str, count: int, nbytes: int) -> None:
    """Refuse the snapshots of a run that was begun with more room than there is now.

    Args:
        store: The capacities.
        name: The store, for the error.
        count: Snapshots held.
        nbytes: Their bytes.

    Raises:
        StoreError: If they are too many, or too large.
    """
    if not fits(store, count, nbytes):
        raise StoreError(
            f"{name} holds {count} snapshots of {format_bytes(nbytes)} of a run that "
            f"was begun with more room than `capacity={store.capacity}` and "
            f"`capacity_bytes={store.capacity_bytes!r}` leave. Pass what it was begun "
            "with, or call `clear()` on the store; the run then begins anew."
        )

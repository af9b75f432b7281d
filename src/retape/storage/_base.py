"""What the driver asks of a store."""

from operator import index
from typing import Protocol, TypeVar

from retape._bytes import parse_bytes
from retape._errors import StoreError

C = TypeVar("C")


class SnapshotStore(Protocol[C]):
    """Keeps capsules in slots of tiers. It knows no framework and no schedule.

    A capsule is opaque, and so are its bytes, which the caller measures. `step` names
    the state that a slot holds, for messages and for files. A slot must be empty before
    `put` and full before `get` and `drop`. Under a mixed plan a slot may hold the tape
    of the stage that begins at `step` in the place of a capsule; `tape` then tells.
    """

    @property
    def peak_snapshots(self) -> int:
        """The most snapshots held at once."""
        ...

    @property
    def peak_bytes(self) -> int:
        """The most bytes of snapshots held at once."""
        ...

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
        """Keep a capsule. Raises `StoreError` if it cannot be kept."""
        ...

    def get(self, step: int, slot: int, tier: str, *, tape: bool = False) -> C:
        """Give a capsule back. Raises `StoreError` if it cannot be trusted."""
        ...

    def drop(self, step: int, slot: int, tier: str, *, tape: bool = False) -> None:
        """Free the slot."""
        ...


def check_capacities(capacity: object, capacity_bytes: int | str | None) -> int | None:
    """Refuse capacities that cannot be, when a store is made; NumPy's integers can."""
    count: int | None = None
    if capacity is not None:
        try:
            count = -1 if isinstance(capacity, bool) else index(capacity)  # pyright: ignore
        except TypeError:
            count = -1
    if count is not None and count < 0:
        raise StoreError(
            f"`capacity={capacity!r}` cannot be: it is a number of snapshots. Pass an "
            'integer, or bytes as `capacity_bytes="2 GiB"`.'
        )
    if capacity_bytes is not None:
        parse_bytes(capacity_bytes, "capacity_bytes")
    return count

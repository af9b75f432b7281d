"""The interface of a store to the driver."""

from typing import Protocol, TypeVar

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

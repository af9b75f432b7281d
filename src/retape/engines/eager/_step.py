"""What a trace is a list of: steps, and the snapshots between them."""

from typing import NamedTuple

from ._signature import Signature


class Step(NamedTuple):
    """One operator: a signature, the slots read, the first slot made, overwrites."""

    signature: Signature
    reads: tuple[int, ...]
    first: int
    writes: tuple[tuple[int, int], ...]


class Snapshot:
    """Slots made before `position` and read after it, until the next snapshot.

    `saved` counts the bytes that autograd had saved by then, since the start.
    """

    __slots__ = ("position", "saved", "slots")

    def __init__(self, position: int, slots: set[int], saved: int) -> None:
        self.position = position
        self.slots = slots
        self.saved = saved

"""Items of a trace: steps, and the snapshots between them."""

from typing import NamedTuple

from retape.engines.eager.trace._signature import Signature


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


def made_by(step: Step) -> range:
    """The slots that a step makes: its new storages first, then its overwrites."""
    made = len(step.signature.outputs) + len(step.writes)
    return range(step.first, step.first + made)

"""How far a run has come, as a store keeps it."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Record:
    """The progress of a run, as a store keeps it.

    Attributes:
        length: The number of steps, or `None` if it is not known yet.
        left: Steps not reversed yet.
        cotangent: That of the state before step `left`; `None` if no step is reversed.
        label: What the run is, for refusing another one.
    """

    length: int | None
    left: int | None
    cotangent: Any
    label: str

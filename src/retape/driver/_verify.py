"""Does a recomputed state equal the one of the first pass?

A step that reads a clock, a global random state or uninitialised memory gives another
state when it is run again, and a gradient that is silently wrong.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar

from .._errors import DeterminismError

C = TypeVar("C")

Verify: TypeAlias = Literal["cheap", "full"]


@dataclass(slots=True)
class Verifier(Generic[C]):
    """Keeps a fingerprint of every state that it is shown, and compares.

    Args:
        fingerprint: A digest of a capsule.
        every_step: Whether states are shown after each step ("full", 16 bytes and a
            dictionary entry for each) or where an advance ends ("cheap").
    """

    fingerprint: Callable[[C], bytes]
    every_step: bool
    _seen: dict[int, bytes] = field(default_factory=dict[int, bytes], init=False)

    def check(self, start: int, stop: int, capsule: C) -> None:
        """Compare the state before step `stop`, reached from step `start`."""
        digest = self.fingerprint(capsule)
        if self._seen.setdefault(stop, digest) == digest:
            return
        where = (
            f"step {start}" if stop == start + 1 else f"a step in {start}..{stop - 1}"
        )
        raise DeterminismError(
            f"{where} gave another state when it was run again (the states before step "
            f"{stop} differ), so the gradient would be wrong. Make the step a function "
            "of its state alone: no clock, no global random state, no input changed in "
            "place."
            + ("" if self.every_step else ' `verify="full"` finds the exact step.')
        )

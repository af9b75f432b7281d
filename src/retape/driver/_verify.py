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


_MOST = 512


@dataclass(slots=True)
class Verifier(Generic[C]):
    """Keeps fingerprints of the first pass, and compares those of every later one.

    States are looked at where the step is a multiple of `stride`. In the "full" way
    that is every step, at 16 bytes and a dictionary entry each. In the "cheap" way the
    stride doubles, and every other fingerprint goes, whenever there are 512 of them.

    Args:
        fingerprint: A digest of a capsule.
        every_step: The full way.
    """

    fingerprint: Callable[[C], bytes]
    every_step: bool
    stride: int = field(default=1, init=False)
    _seen: dict[int, bytes] = field(default_factory=dict[int, bytes], init=False)

    def next_stop(self, start: int, stop: int) -> int:
        """Where to look next on the way from `start` to `stop`."""
        return min(stop, (start // self.stride + 1) * self.stride)

    def check(self, start: int, stop: int, capsule: C) -> None:
        """Compare the state before step `stop`, reached from step `start`."""
        if stop % self.stride:
            return
        digest = self.fingerprint(capsule)
        if self._seen.setdefault(stop, digest) != digest:
            self._complain(start, stop)
        if len(self._seen) >= _MOST and not self.every_step:
            self.stride *= 2
            kept = {k: seen for k, seen in self._seen.items() if k % self.stride == 0}
            self._seen = kept

    def _complain(self, start: int, stop: int) -> None:
        one = stop == start + 1
        where = f"step {start}" if one else f"a step in {start}..{stop - 1}"
        raise DeterminismError(
            f"{where} gave another state when it was run again (the states before step "
            f"{stop} differ), so the gradient would be wrong. Make the step a function "
            "of its state alone: no clock, no global random state, no input changed in "
            "place." + ("" if one else ' `verify="full"` finds the exact step.')
        )

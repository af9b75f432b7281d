"""Counts of a recorded run."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from retape._html import record_html


@dataclass(slots=True)
class Tally:
    """Counts of one run, while it goes on. `again` counts how often each step was."""

    steps: int = 0
    saved: int = 0
    recomputed: int = 0
    stages: int = 0
    planted: int = 0
    snapshots: int = 0
    thinned: int = 0
    peak: int = 0
    again: Counter[int] = field(default_factory=Counter[int])

    def cost(self, costs: Sequence[int]) -> int:
        """The cost of all that was run again, from those of the steps."""
        return sum(count * costs[index] for index, count in self.again.items())

    def report(self) -> "EagerReport":
        """The counts so far, frozen."""
        return EagerReport(
            steps=self.steps,
            saved=self.saved,
            recomputed=self.recomputed,
            stages=self.stages,
            planted=self.planted,
            snapshots=self.snapshots,
            thinned=self.thinned,
            peak_bytes=self.peak,
        )


@dataclass(frozen=True, slots=True)
class EagerReport:
    """Counts of a run under `recompute` so far.

    Attributes:
        steps: Operators recorded.
        saved: Tensors that autograd saved for its backward.
        recomputed: Operators run again.
        stages: Times that a part of the run was recomputed for its backward.
        planted: Snapshots stored during the backward.
        snapshots: Snapshots placed during the forward.
        thinned: Of those, how many were given up again.
        peak_bytes: The most bytes alive at once in storages that the run made, those
            recomputed included; gradients are not among them.
    """

    steps: int
    saved: int
    recomputed: int
    stages: int
    planted: int
    snapshots: int
    thinned: int
    peak_bytes: int

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        return record_html(self)

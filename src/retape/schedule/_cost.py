"""Counts of a schedule, without replaying it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from retape.schedule._binomial import least_stores, optimal_advances


class TierCounts(NamedTuple):
    """Counts of one tier.

    Attributes:
        stores: Snapshots written to it; tapes, too.
        restores: Snapshots read from it; tapes are not counted.
        peak: The most slots in use at once.
    """

    stores: int = 0
    restores: int = 0
    peak: int = 0


def _no_tiers() -> dict[str, TierCounts]:
    return {}


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of a schedule's actions.

    Attributes:
        advances: Steps run without a tape.
        taped: Steps taped and swept back.
        stores: Snapshots written.
        restores: Snapshots read.
        reverses: Stages.
        peak_snapshots: The most slots in use at once, on all tiers together.
        longest_stage: The most steps on the tape at once.
        kept_tapes: Tapes written to slots, in mixed schedules.
        tiers: The counts of each tier by its name, from a replay and from schedules
            over tiers; empty for others. Two counts are equal whatever this is.
    """

    advances: int
    taped: int
    stores: int
    restores: int
    reverses: int
    peak_snapshots: int
    longest_stage: int
    kept_tapes: int = 0
    tiers: Mapping[str, TierCounts] = field(
        default_factory=_no_tiers, compare=False, repr=False
    )

    @property
    def peak_disk(self) -> int:
        """The most slots in use at once on the tier "disk"."""
        return self.tiers["disk"].peak if "disk" in self.tiers else 0

    @property
    def peak_memory(self) -> int:
        """The most slots in use at once on the other tiers, each for itself."""
        if not self.peak_disk:
            return self.peak_snapshots
        return sum(each.peak for name, each in self.tiers.items() if name != "disk")

    def peak_bytes(self, capsule_bytes: int, tape_bytes: int) -> int:
        """Memory for snapshots at their most and the longest tape.

        peak_memory*w + longest_stage*r: what is on disk is not counted, and a tape in a
        slot as if it were a snapshot.
        """
        return self.peak_memory * capsule_bytes + self.longest_stage * tape_bytes


def binomial_counts(length: int, stage: int, snapshots: int) -> Counts:
    """The closed form for the binomial split; constant in memory, O(t) in time.

    Args:
        length: The number of steps.
        stage: Steps taped at a time.
        snapshots: The most snapshots, the start state's included.

    Raises:
        PlanError: If a count is no integer, or cannot be.

    Examples:
        >>> counts = binomial_counts(10**9, 1000, 20)
        >>> counts.advances, counts.stores, counts.peak_snapshots
        (6815960000, 657800, 20)
    """
    stages = -(-length // stage)
    return Counts(
        advances=stage * optimal_advances(stages, snapshots),
        taped=length,
        stores=least_stores(stages, snapshots),
        restores=max(0, stages - 1),
        reverses=max(1, stages),
        peak_snapshots=max(0, min(snapshots, stages - 1)),
        longest_stage=min(stage, length),
    )

"""Counts of a schedule, without replaying it."""

from collections.abc import Iterable, Mapping
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

    def __str__(self) -> str:
        return f"{self.stores} stores, {self.restores} restores, at most {self.peak}"


@dataclass(slots=True)
class _Tier:
    """The counts of one tier, and the slots that are in use there now."""

    stores: int = 0
    restores: int = 0
    peak: int = 0
    live: int = 0


@dataclass(slots=True)
class TierMeter:
    """The counts of all tiers, taken while a run or a replay goes on.

    Examples:
        >>> meter = TierMeter()
        >>> meter.wrote("disk"), meter.wrote("disk"), meter.freed("disk")
        (None, None, None)
        >>> meter.counts()
        {'disk': TierCounts(stores=2, restores=0, peak=2)}
    """

    tiers: dict[str, _Tier] = field(default_factory=dict[str, _Tier])

    def wrote(self, tier: str) -> None:
        """Count a snapshot that was written."""
        self.holds(tier)
        self.tiers[tier].stores += 1

    def read(self, tier: str) -> None:
        """Count a snapshot that was read."""
        self.tiers[tier].restores += 1

    def holds(self, tier: str) -> None:
        """Count a slot in use, which an earlier process may have filled."""
        if tier not in self.tiers:
            self.tiers[tier] = _Tier()
        each = self.tiers[tier]
        each.live += 1
        if each.live > each.peak:
            each.peak = each.live

    def freed(self, tier: str) -> None:
        """Count a slot that is free again."""
        self.tiers[tier].live -= 1

    def took_up(self, tiers: Iterable[str]) -> None:
        """Count the slots that an earlier process has left in use."""
        for each in self.tiers.values():
            each.live = 0
        for tier in tiers:
            self.holds(tier)

    def live(self, tier: str) -> int:
        """The slots in use on a tier."""
        return self.tiers[tier].live if tier in self.tiers else 0

    def counts(self) -> dict[str, TierCounts]:
        """The counts, in the order in which the tiers were first used."""
        return {
            name: TierCounts(each.stores, each.restores, each.peak)
            for name, each in self.tiers.items()
        }


def _no_tiers() -> dict[str, TierCounts]:
    return {}


@dataclass(slots=True)
class Counts:
    """Counts of a schedule's actions, taken while they are obeyed or worked out.

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

    advances: int = 0
    taped: int = 0
    stores: int = 0
    restores: int = 0
    reverses: int = 0
    peak_snapshots: int = 0
    longest_stage: int = 0
    kept_tapes: int = 0
    tiers: Mapping[str, TierCounts] = field(
        default_factory=_no_tiers, compare=False, repr=False
    )

    @property
    def peak_disk(self) -> int:
        """The most slots in use at once on the tier "disk"."""
        return self.tiers["disk"].peak if "disk" in self.tiers else 0


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

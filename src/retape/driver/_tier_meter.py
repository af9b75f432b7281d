"""What a run puts on each tier and takes from it, counted while it runs."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from retape.schedule._cost import TierCounts


@dataclass(slots=True)
class _Tier:
    """The counts of one tier, and the slots that are in use there now."""

    stores: int = 0
    restores: int = 0
    peak: int = 0
    live: int = 0


@dataclass(slots=True)
class TierMeter:
    """The counts of all tiers.

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

    def counts(self) -> dict[str, TierCounts]:
        """The counts, in the order in which the tiers were first used."""
        return {
            name: TierCounts(each.stores, each.restores, each.peak)
            for name, each in self.tiers.items()
        }

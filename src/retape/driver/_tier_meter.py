"""What a run puts on each tier and takes from it, counted while it runs."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from retape.schedule._cost import TierCounts


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

    stores: dict[str, int] = field(default_factory=dict[str, int])
    restores: dict[str, int] = field(default_factory=dict[str, int])
    live: dict[str, int] = field(default_factory=dict[str, int])
    peaks: dict[str, int] = field(default_factory=dict[str, int])

    def wrote(self, tier: str) -> None:
        """Count a snapshot that was written."""
        self.stores[tier] = self.stores.get(tier, 0) + 1
        self.holds(tier)

    def read(self, tier: str) -> None:
        """Count a snapshot that was read."""
        self.restores[tier] = self.restores.get(tier, 0) + 1

    def holds(self, tier: str) -> None:
        """Count a slot in use, which an earlier process may have filled."""
        live = self.live.get(tier, 0) + 1
        self.live[tier] = live
        if live > self.peaks.get(tier, 0):
            self.peaks[tier] = live

    def freed(self, tier: str) -> None:
        """Count a slot that is free again."""
        self.live[tier] = self.live.get(tier, 0) - 1

    def took_up(self, tiers: Iterable[str]) -> None:
        """Count the slots that an earlier process has left in use."""
        self.live.clear()
        for tier in tiers:
            self.holds(tier)

    def counts(self) -> dict[str, TierCounts]:
        """The counts, in the order in which the tiers were first used."""
        return {
            tier: TierCounts(self.stores.get(tier, 0), self.restores.get(tier, 0), peak)
            for tier, peak in self.peaks.items()
        }

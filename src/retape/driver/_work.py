"""The work of a process in a run: steps, snapshots and seconds, as they are counted."""

from dataclasses import dataclass, field
from time import perf_counter

from retape.driver._report import Report
from retape.driver._tier_meter import TierMeter


def _no_seconds() -> dict[str, float]:
    return dict.fromkeys(("forward", "recompute", "reverse", "storage"), 0.0)


@dataclass(slots=True)
class Work:
    """What was done so far; of what the counts of a `Report` mean.

    Attributes:
        total: The work of the whole run, if it can be predicted.
        skipped: Work that an earlier process has done.
        meter: The counts of the tiers.
        seconds: The time of each phase.
    """

    advances: int = 0
    taped: int = 0
    stores: int = 0
    restores: int = 0
    reverses: int = 0
    longest: int = 0
    kept_tapes: int = 0
    repaired: int = 0
    checked: int = 0
    skipped: int = 0
    total: int | None = None
    meter: TierMeter = field(default_factory=TierMeter)
    seconds: dict[str, float] = field(default_factory=_no_seconds)

    @property
    def done(self) -> int:
        """Steps run, with those of earlier processes."""
        return self.advances + self.taped + self.skipped

    def spend(self, phase: str, began: float) -> None:
        """Book the time since `began` under a phase."""
        self.seconds[phase] += perf_counter() - began

    def swept(self, start: int, stop: int, began: float) -> None:
        """Count a stage that was reversed."""
        self.reverses += 1
        self.longest = max(self.longest, stop - start)
        self.spend("reverse", began)

    def report(
        self, length: int, peak_snapshots: int, peak_bytes: int, *, resumed: bool
    ) -> Report:
        """The counts as a report, with what the store knows."""
        return Report(
            length=length,
            advances=self.advances,
            taped=self.taped,
            stores=self.stores,
            restores=self.restores,
            reverses=self.reverses,
            longest_stage=self.longest,
            peak_snapshots=peak_snapshots,
            peak_bytes=peak_bytes,
            repaired=self.repaired,
            checked=self.checked,
            resumed=resumed,
            seconds=dict(self.seconds),
            kept_tapes=self.kept_tapes,
            tiers=self.meter.counts(),
        )

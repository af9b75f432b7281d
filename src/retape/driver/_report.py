"""Exact counts of a run, taken while it ran."""

from dataclasses import dataclass, field

from retape._bytes import format_bytes
from retape.driver._memory_trace import MemoryTrace
from retape.schedule._cost import Counts


def _no_seconds() -> dict[str, float]:
    return dict.fromkeys(("forward", "recompute", "reverse", "storage"), 0.0)


@dataclass(slots=True)
class Report(Counts):
    """Counts of one run, which are taken while it runs.

    Attributes:
        advances: Steps run without a tape.
        taped: Steps taped and swept back.
        stores: Snapshots written.
        restores: Snapshots read.
        reverses: Stages.
        peak_snapshots: The most snapshots alive at once.
        longest_stage: The most steps on the tape at once.
        kept_tapes: Tapes written to slots, under a mixed plan.
        tiers: The counts of each tier that the schedule names, by its name.
        length: Steps of the run.
        peak_bytes: The most bytes of snapshots alive at once.
        repaired: Snapshots that were lost or damaged, and recomputed.
        resumed: Whether an earlier process had begun the run; the counts are then those
            of this process only.
        seconds: Wall-clock time by phase: "forward" (advances before the first stage),
            "recompute" (advances after it), "reverse" (taping and sweeping back) and
            "storage" (writing, reading and dropping snapshots).
        checked: Steps run besides, to tell what a step from a snapshot does: a store
            that outlives its process takes a run up only where that is as it was.
        memory: What was predicted and measured over time, where that was asked for;
            `retape.viz.timeline` draws it.
    """

    length: int = 0
    peak_bytes: int = 0
    repaired: int = 0
    resumed: bool = False
    seconds: dict[str, float] = field(default_factory=_no_seconds, compare=False)
    checked: int = field(default=0, compare=False)
    memory: MemoryTrace | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        total = sum(self.seconds.values())
        spent = ", ".join(f"{name} {s:.3g} s" for name, s in self.seconds.items())
        if self.resumed and not self.reverses:
            return (
                f"{self.length} steps: an earlier process had done it all, and its "
                f"result was read\n{total:.3g} s: {spent}"
            )
        tapes = f", {self.kept_tapes} tapes kept" if self.kept_tapes else ""
        tiers = ""
        if any(name not in ("memory", "disk") for name in self.tiers):
            tiers = "".join(f"\n{name}: {tier}" for name, tier in self.tiers.items())
        return (
            f"{self.length} steps: {self.advances} advances, {self.taped} taped in "
            f"{self.reverses} stages of at most {self.longest_stage}\n"
            f"{self.stores} stores, {self.restores} restores{tapes}, at most "
            f"{self.peak_snapshots} snapshots, {format_bytes(self.peak_bytes)}{tiers}\n"
            f"{total:.3g} s: {spent}"
        )

"""What a plan comes to: the choice of (alpha, d, t), and what a run under it counts."""

from dataclasses import dataclass, fields
from math import inf
from typing import Any, NamedTuple, TypeAlias

from retape._bytes import format_bytes
from retape.schedule._cost import Counts
from retape.schedule._offline import Offline

Bytes: TypeAlias = tuple[int, int]
"""A capsule's bytes w, and the bytes r of the tape of one step."""


class Resolved(NamedTuple):
    """A plan made definite.

    Attributes:
        alpha: The stage length, in steps.
        d: Snapshots, the start state's included; 0 if the run is a single stage.
        t: Most times that a step is advanced; `None` while the length is unknown.
    """

    alpha: int
    d: int
    t: int | None


@dataclass(slots=True)
class Prediction(Counts):
    """What a run under a plan will count and hold: the counts are those of a replay.

    Attributes:
        alpha: The stage length, in steps.
        d: Snapshots allowed.
        t: Most times that a step is advanced.
        peak_bytes: Memory for the snapshots at their most and the longest tape, in
            bytes; `None` without the bytes of a capsule and of a taped step.
        host_bytes: The same in the host's memory, for a plan with `offload="host"`.
        cost: In the unit of a plan that knows costs.
        bound: The plan is the best of its kind (1.0), or its cost, if it has one, or
            else the steps it runs, are at most so many times the least; infinite where
            that may be nothing.
        tiers: For a plan over tiers, the use of each, by its name.
        capsule_bytes: Of one snapshot, if that is known.
    """

    alpha: int = 1
    d: int = 0
    t: int = 0
    peak_bytes: int | None = None
    host_bytes: int | None = None
    cost: float | None = None
    bound: float = 1.0
    capsule_bytes: int | None = None

    @property
    def disk_bytes(self) -> int | None:
        """Of the snapshots on disk at their most, for a plan that uses one."""
        return self.bytes_on("disk") if "disk" in self.tiers else None

    def bytes_on(self, tier: str) -> int | None:
        """Of the snapshots on a tier at their most, if those of one are known."""
        w = self.capsule_bytes
        return None if w is None else self.tiers[tier].peak * w

    def __str__(self) -> str:
        peak = "unknown" if self.peak_bytes is None else format_bytes(self.peak_bytes)
        tapes, disk = self.kept_tapes, self.peak_disk
        more = f"; {tapes} tapes kept" if tapes else ""
        if any(name not in ("memory", "disk") for name in self.tiers):
            more += f"; {', '.join(map(self._shown, self.tiers))}"
        else:
            more += f"; at most {disk} snapshots on disk" if disk else ""
        if self.host_bytes is not None:
            more += f" and {format_bytes(self.host_bytes)} on the host"
        if self.cost is not None:
            more += f"; cost {self.cost:g}"
        if 1 < self.bound < inf:
            more += f", at most {self.bound:.3f} times the least"
        elif self.bound == 1 and self.cost is not None:
            more += ", the least"
        return (
            f"{self.taped} steps in {self.reverses} stages of at most "
            f"{self.alpha}; {self.advances} advances (each step at most {self.t} "
            f"times), {self.stores} stores, {self.peak_snapshots} snapshots, "
            f"peak {peak}{more}"
        )

    def _shown(self, tier: str) -> str:
        nbytes = self.bytes_on(tier)
        shown = "" if nbytes is None else f" ({format_bytes(nbytes)})"
        return f"{tier}: {self.tiers[tier]}{shown}"


def predicted(
    schedule: Offline, sizes: Bytes | None, *, on_host: bool = False
) -> Prediction:
    """What a run under a schedule comes to.

    Args:
        schedule: The schedule.
        sizes: The bytes of a capsule and of the tape of a step, if they are known.
        on_host: Whether snapshots wait in the host's memory, apart from the device's.
    """
    counts, host = schedule.counts(), None
    peak = schedule.peak_bytes(sizes)
    if sizes is not None and on_host:
        w, r = sizes
        peak, host = schedule.peak_bytes((0, r)), counts.peak_snapshots * w
    taken: dict[str, Any] = {
        each.name: getattr(counts, each.name) for each in fields(counts)
    }
    taken["tiers"] = counts.tiers if schedule.tier_names else {}
    return Prediction(
        **taken,
        alpha=max(1, counts.longest_stage),
        d=schedule.slots,
        t=schedule.sweeps,
        peak_bytes=peak,
        host_bytes=host,
        cost=schedule.cost(),
        bound=schedule.bound(),
        capsule_bytes=None if sizes is None else sizes[0],
    )

"""Plans: what the user fixes, and how the rest follows from the length of a run.

The paper's `PICK` (Figs. 26 and 27) chooses alpha, d and t from n. A plan is that
choice as data: it knows no framework and no program. An engine asks it to `resolve` a
number of steps and the bytes of a capsule and of a taped step.
"""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple, NoReturn, TypeAlias

from ._bytes import format_bytes
from ._errors import PlanError
from ._plan_options import Memory
from .schedule import Chain, Counts, Mixed, Schedule, Split, TreeName, TwoTier

MANY_STEPS = 1 << 40
"""What an unknown length is taken for where a plan needs a bound: 10^12 steps."""


Bytes: TypeAlias = tuple[int, int]
"""A capsule's bytes w, and the bytes r of the tape of one step."""


class Resolved(NamedTuple):
    """A plan made definite.

    Attributes:
        alpha: The stage length.
        d: Snapshots, the start state's included; 0 if the run is a single stage.
        t: Most times that a step is advanced; `None` while the length is unknown.
    """

    alpha: int
    d: int
    t: int | None


AnySchedule: TypeAlias = Schedule | Mixed | TwoTier | Chain
"""What a plan may mean: an iterable of actions, with `counts()`."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a run under a plan will do.

    Attributes:
        alpha: The stage length.
        d: Snapshots allowed.
        t: Most times that a step is advanced.
        counts: Exactly what a replay of the schedule counts.
        peak_bytes: Memory for the snapshots at their most and the longest tape, in
            bytes; `None` without the bytes of a capsule and of a taped step.
        disk_bytes: The same on disk, for a plan that uses one.
        host_bytes: The same in the host's memory, for a plan with `offload="host"`.
        cost: In the unit of a plan that knows costs.
        bound: The plan is the best of its kind (1.0), or its cost, if it has one, or
            else the steps it runs, are at most so many times the least; infinite where
            that may be nothing.
    """

    alpha: int
    d: int
    t: int
    counts: Counts
    peak_bytes: int | None
    disk_bytes: int | None = None
    host_bytes: int | None = None
    cost: float | None = None
    bound: float = 1.0

    @property
    def advances(self) -> int:
        return self.counts.advances

    @property
    def taped(self) -> int:
        return self.counts.taped

    @property
    def stores(self) -> int:
        return self.counts.stores

    @property
    def peak_snapshots(self) -> int:
        return self.counts.peak_snapshots

    def __str__(self) -> str:
        peak = "unknown" if self.peak_bytes is None else format_bytes(self.peak_bytes)
        tapes, disk = self.counts.kept_tapes, self.counts.peak_disk
        more = f"; {tapes} tapes kept" if tapes else ""
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
            f"{self.taped} steps in {self.counts.reverses} stages of at most "
            f"{self.alpha}; {self.advances} advances (each step at most {self.t} "
            f"times), {self.stores} stores, {self.peak_snapshots} snapshots, "
            f"peak {peak}{more}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What all plans share; `retape.fixed_space` and its like make one."""

    def resolve(
        self,
        n: int | None,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Resolved:
        """Choose (alpha, d, t).

        Args:
            n: The number of steps, or `None` while it is unknown.
            capsule_bytes: What one snapshot takes, w.
            tape_bytes: What taping one step takes, r.

        Raises:
            PlanError: If this plan needs something that is not known.
            BudgetError: If the bytes do not suffice; the least that would is named.

        Example:
            >>> import retape
            >>> retape.fixed_space(snapshots=3).resolve(10)
            Resolved(alpha=1, d=3, t=2)
        """
        raise NotImplementedError(type(self).__name__)

    def schedule(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> AnySchedule:
        """The schedule that this plan means for a run of n steps."""
        raise NotImplementedError(type(self).__name__)

    def predict(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Prediction:
        """What a run of n steps will do, without running it.

        Example:
            >>> import retape
            >>> prediction = retape.fixed_space(snapshots=9).predict(1000)
            >>> prediction.advances, prediction.peak_snapshots, prediction.t
            (3999, 9, 5)
        """
        raise NotImplementedError(type(self).__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePlan(Plan):
    """A plan that is (alpha, d, t), and the way to cut intervals."""

    split: Split = "binomial"
    tree: TreeName = "n-ary"
    offload: Memory | None = None

    def resolve(
        self,
        n: int | None,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Resolved:
        if n is not None and n < 0:
            raise PlanError(f"`n={n}` cannot be: a run has no steps, or some.")
        if n == 0:
            return Resolved(1, 0, 0)
        alpha, d = self._pick(n, both_bytes(capsule_bytes, tape_bytes))
        if n is None:
            return Resolved(alpha, d, None)
        alpha = min(alpha, n)
        stages = -(-n // alpha)
        d = min(d, stages - 1)
        return Resolved(alpha, d, Schedule(n, d, alpha, self.split).sweeps)

    def schedule(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> AnySchedule:
        alpha, d, _ = self.resolve(n, capsule_bytes, tape_bytes)
        return Schedule(n, d, alpha, self.split, self.tree)

    def predict(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Prediction:
        alpha, d, t = self.resolve(n, capsule_bytes, tape_bytes)
        counts = Schedule(n, d, alpha, self.split).counts()
        both = both_bytes(capsule_bytes, tape_bytes)
        if both is None or self.offload is None:
            peak = counts.peak_bytes(*both) if both else None
            return Prediction(alpha, d, t or 0, counts, peak)
        w, r = both
        host = counts.peak_snapshots * w
        peak = counts.peak_bytes(0, r)
        return Prediction(alpha, d, t or 0, counts, peak, host_bytes=host)

    def _pick(self, n: int | None, both: Bytes | None) -> tuple[int, int]:
        """alpha and d for n >= 1 steps; `resolve` trims both to what n can use."""
        raise NotImplementedError(type(self).__name__)


def needs_length(kind: str) -> NoReturn:
    """Refuse a run whose length only its end tells."""
    raise PlanError(
        f"`{kind}` needs the number of steps beforehand, since its number of "
        "snapshots follows from it, and this run tells its length only at its end. Use "
        "`fixed_space(snapshots=...)`, `logarithmic()` or `within(...)`."
    )


def both_bytes(capsule_bytes: int | None, tape_bytes: int | None) -> Bytes | None:
    """Both or neither."""
    if capsule_bytes is None and tape_bytes is None:
        return None
    if capsule_bytes is None or tape_bytes is None:
        raise PlanError(
            f"`capsule_bytes={capsule_bytes}` and `tape_bytes={tape_bytes}`: a stage "
            "length follows from both or from neither. Pass the two of them."
        )
    if capsule_bytes < 0 or tape_bytes < 0:
        raise PlanError(
            f"`capsule_bytes={capsule_bytes}` and `tape_bytes={tape_bytes}`: bytes "
            "cannot be negative. Pass the bytes of a snapshot and of a taped step."
        )
    return capsule_bytes, tape_bytes

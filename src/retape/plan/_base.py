"""Plans: what the user fixes, and how the rest follows from the length of a run.

The paper's `PICK` (Figs. 26 and 27) chooses alpha, d and t from n. A plan is that
choice as data: it knows no framework and no program. An engine asks it what it needs
and may do (`needs_length`, `keeps_tapes`, `budget`, `offload`, ...), and to `resolve` a
number of steps and the bytes of a capsule and of a taped step. No engine asks which
kind of plan it is: `_obeyers` says who can do what, `_registry` lists the kinds.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from math import inf
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, TypeAlias

from retape._bytes import format_bytes
from retape._errors import PlanError
from retape._html import record_html
from retape.plan._options import Loops, Memory
from retape.schedule import (
    Chain,
    Counts,
    Hierarchy,
    Mixed,
    Online,
    OnlineBinomial,
    Schedule,
    Split,
    TwoTier,
)
from retape.schedule._whole import whole

MANY_STEPS = 1 << 40
"""What an unknown length is taken for where a plan needs a bound: 10^12 steps."""


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


class TierUse(NamedTuple):
    """The predicted use of one tier.

    Attributes:
        stores: Snapshots written to it.
        restores: Snapshots read from it.
        peak: The most snapshots on it at once.
        nbytes: The bytes of these; `None` without the bytes of a capsule.
    """

    stores: int
    restores: int
    peak: int
    nbytes: int | None = None


def tier_uses(counts: Counts, capsule_bytes: int | None) -> dict[str, TierUse]:
    """What a schedule's counts of its tiers come to, in the tiers' order."""
    uses: dict[str, TierUse] = {}
    for name, tier in counts.tiers.items():
        nbytes = None if capsule_bytes is None else tier.peak * capsule_bytes
        uses[name] = TierUse(*tier, nbytes)
    return uses


def _no_uses() -> dict[str, TierUse]:
    return {}


AnySchedule: TypeAlias = Schedule | Mixed | TwoTier | Hierarchy | Chain
"""What a plan may mean: an iterable of actions, with `counts()`."""


def shown_tiers(tiers: Mapping[str, TierUse]) -> str:
    """The uses of tiers in words."""
    return ", ".join(
        f"{name}: {use.stores} stores, {use.restores} restores, at most {use.peak}"
        + ("" if use.nbytes is None else f" ({format_bytes(use.nbytes)})")
        for name, use in tiers.items()
    )


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted counts and bytes of a run under a plan.

    Attributes:
        alpha: The stage length, in steps.
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
        tiers: For a plan over tiers, the use of each, by its name.
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
    tiers: Mapping[str, TierUse] = field(
        default_factory=_no_uses, compare=False, repr=False
    )

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        return record_html(self)

    @property
    def advances(self) -> int:
        """Steps run without a tape, recomputed ones included."""
        return self.counts.advances

    @property
    def taped(self) -> int:
        """Steps run with a tape: the length of the run, and tapes made again."""
        return self.counts.taped

    @property
    def stores(self) -> int:
        """Snapshots written."""
        return self.counts.stores

    @property
    def peak_snapshots(self) -> int:
        """The most snapshots held at once."""
        return self.counts.peak_snapshots

    def __str__(self) -> str:
        peak = "unknown" if self.peak_bytes is None else format_bytes(self.peak_bytes)
        tapes, disk = self.counts.kept_tapes, self.counts.peak_disk
        more = f"; {tapes} tapes kept" if tapes else ""
        if any(name not in ("memory", "disk") for name in self.tiers):
            more += f"; {shown_tiers(self.tiers)}"
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
            f"{self.taped} steps in {self.counts.reverses} stages of at most "
            f"{self.alpha}; {self.advances} advances (each step at most {self.t} "
            f"times), {self.stores} stores, {self.peak_snapshots} snapshots, "
            f"peak {peak}{more}"
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan:
    """Base class of all plans; `retape.fixed_space` and its like make one.

    Its attributes are what an engine asks; a kind of plan leaves those alone that it
    has not.

    Attributes:
        NAME: The function that makes such plans.
        is_tree: The plan is (alpha, d, t) and a way to cut intervals, so that an engine
            can make its own schedule from `resolve`. Otherwise only `schedule` tells
            what to do, and it is obeyed action by action.
        needs_length: The number of steps must be known before the run.
        keeps_tapes: Slots may hold tapes.
        sizes_stages: How long stages are is what the plan is about: leave it alone.
        stage: The stage length that the user has fixed, or `None`.
        split: Where intervals are cut.
        offload: The memory in which snapshots wait, or `None` for the device's own.
        budget: The bytes that all that a gradient holds share, or `None`.
        loops: For whom a compiled gradient's loops are made, whatever it is lowered
            for; `None` to go by that. `retape.jax.grad(..., loops=...)` sets it.
    """

    NAME: ClassVar[str] = "Plan"
    is_tree: ClassVar[bool] = False
    needs_length: ClassVar[bool] = False
    sizes_stages: ClassVar[bool] = False
    keeps_tapes: ClassVar[bool] = False

    stage: int | None = None
    split: Split = "binomial"
    offload: Memory | None = None
    budget: int | None = None
    loops: Loops | None = None

    @property
    def far_tiers(self) -> tuple[str, ...]:
        """The tiers that it names beside the nearest one."""
        return ()

    def resolve(
        self,
        n: int | None,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Resolved:
        """Choose (alpha, d, t).

        Args:
            n: The number of steps, or `None` while it is unknown.
            capsule_bytes: The bytes of one snapshot, w.
            tape_bytes: The bytes of the tape of one step, r.

        Returns:
            The stage length, the number of snapshots and the number of sweeps.

        Raises:
            PlanError: If this plan needs something that is not known.
            BudgetError: If the bytes do not suffice; the least that would is named.

        Examples:
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
        """The schedule that this plan means for a run of n steps.

        Args:
            n: The number of steps.
            capsule_bytes: The bytes of one snapshot, w.
            tape_bytes: The bytes of the tape of one step, r.

        Raises:
            PlanError: If this plan needs something that is not known.
            BudgetError: If the bytes do not suffice; the least that would is named.

        Examples:
            >>> import retape
            >>> for action in retape.segments(stage=2).schedule(4):
            ...     print(action)
            Store(step=0, slot=0, tier='memory')
            Advance(start=0, stop=2)
            Reverse(start=2, stop=4)
            Restore(step=0, slot=0, tier='memory')
            Drop(step=0, slot=0, tier='memory')
            Reverse(start=0, stop=2)
        """
        raise NotImplementedError(type(self).__name__)

    def online(
        self, capsule_bytes: int | None = None, tape_bytes: int | None = None
    ) -> Online:
        """The schedule that this plan means for a run whose end is not known.

        Args:
            capsule_bytes: The bytes of one snapshot, w.
            tape_bytes: The bytes of the tape of one step, r.

        Raises:
            PlanError: If this plan needs something that is not known.
            BudgetError: If the bytes do not suffice; the least that would is named.

        Examples:
            >>> import retape
            >>> retape.fixed_space(snapshots=3).online()
            OnlineBinomial(snapshots=3, stage=1)
        """
        alpha, d, _ = self.resolve(None, capsule_bytes, tape_bytes)
        return OnlineBinomial(d, alpha)

    def predict(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Prediction:
        """Predict a run of n steps, without running it.

        Args:
            n: The number of steps.
            capsule_bytes: The bytes of one snapshot, w.
            tape_bytes: The bytes of the tape of one step, r.

        Raises:
            PlanError: If this plan needs something that is not known.
            BudgetError: If the bytes do not suffice; the least that would is named.

        Examples:
            >>> import retape
            >>> prediction = retape.fixed_space(snapshots=9).predict(1000)
            >>> prediction.advances, prediction.peak_snapshots, prediction.t
            (3999, 9, 5)
        """
        raise NotImplementedError(type(self).__name__)

    def with_stage(self, stage: int) -> Self:
        """The same plan with stages of so many steps, unless the user has fixed them.

        Examples:
            >>> import retape
            >>> retape.logarithmic().with_stage(8)
            retape.logarithmic(stage=8)
            >>> retape.logarithmic(stage=2).with_stage(8)
            retape.logarithmic(stage=2)
        """
        return replace(self, stage=stage) if self.stage is None else self

    def for_batch(self, runs: int) -> Self:
        """The plan for so many runs at a time: a budget is for each of them.

        Examples:
            >>> import retape
            >>> retape.within("1 kB").for_batch(3)
            retape.within(3000)
        """
        return self if self.budget is None else replace(self, budget=self.budget * runs)

    @property
    def limit(self) -> int:
        """The budget of a plan that has one."""
        assert self.budget is not None, "asked only of a plan with a budget"
        return self.budget

    def _repr_html_(self) -> str:
        """Its options as a table, for notebooks."""
        return record_html(self)

    def __repr__(self) -> str:
        """The call that makes this plan."""
        # What must be said comes first, such as `snapshots`; what goes without saying
        # is left out.
        given = [
            f"{each.name}={getattr(self, each.name)!r}"
            for each in sorted(
                fields(self), key=lambda f: _default_of(f) is not MISSING
            )
            if each.name != "loops"  # an option of who obeys the plan
            if getattr(self, each.name) != _default_of(each)
        ]
        return f"retape.{self.NAME}({', '.join(given)})"


def _goes_without_saying(each: Field[Any]) -> bool:
    return _default_of(each) is not MISSING


def _default_of(each: Field[Any]) -> Any:
    made = each.default_factory
    return each.default if made is MISSING else made()


def refuse_unknown_length(kind: str, since: str) -> NoReturn:
    """Refuse a run whose length only its end tells.

    Args:
        kind: The plan.
        since: Why it needs the length.

    Raises:
        PlanError: Always.
    """
    raise PlanError(
        f"`{kind}` needs the number of steps beforehand, since its {since}, and this "
        "run tells its length only at its end. Use `fixed_space(snapshots=...)` with "
        "states only, `logarithmic()` or `within(...)`."
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
    capsule_bytes = whole("capsule_bytes", capsule_bytes)
    tape_bytes = whole("tape_bytes", tape_bytes)
    if capsule_bytes < 0 or tape_bytes < 0:
        raise PlanError(
            f"`capsule_bytes={capsule_bytes}` and `tape_bytes={tape_bytes}`: bytes "
            "cannot be negative. Pass the bytes of a snapshot and of a taped step."
        )
    return capsule_bytes, tape_bytes

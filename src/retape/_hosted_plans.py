"""Plans that more than (alpha, d, t) is needed for: tiers and chains.

Their schedules come out of dynamic programmes, so the number of steps must be known,
and the driver obeys them action by action: `retape.adjoint` and `retape.driver.run`. An
engine that makes its own schedule from (alpha, d, t) asks `resolve`, which refuses.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from ._budget import stage_for_snapshots
from ._bytes import format_bytes, parse_bytes
from ._errors import BudgetError, PlanError
from ._plan import Plan, Prediction, Resolved, both_bytes
from ._plan_options import check_stage, refuse_others
from .schedule import Chain, TierCosts, TwoTier


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedPlan(Plan):
    """A plan whose schedule is obeyed action by action."""

    _NAME: ClassVar[str]

    def resolve(
        self,
        n: int | None,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Resolved:
        """Refused: this plan is no (alpha, d, t); `schedule` and `predict` work."""
        if n is None:
            raise PlanError(
                f"`{self._NAME}` needs the number of steps beforehand, since its "
                "schedule comes out of a dynamic programme, and this run tells its "
                "length only at its end. Use `fixed_space(snapshots=...)` with states "
                "only, `logarithmic()` or `within(...)`."
            )
        raise PlanError(
            f"`{self._NAME}` cannot be put as a stage length, a number of snapshots "
            "and a number of sweeps, which is what was asked for. It is for "
            "`retape.adjoint` and `retape.driver.run`, which obey it action by action. "
            "Pass another plan here, such as `fixed_space(snapshots=20)`."
        )


def stage_within(n: int, stage: int | None, roomy: int) -> int:
    """The stage length asked for, or else `roomy`; no longer than the run."""
    return max(1, min(roomy if stage is None else stage, n))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiers(HostedPlan):
    """`retape.tiers`."""

    _NAME: ClassVar[str] = "tiers"

    memory: int | str
    disk: int | str
    costs: TierCosts = field(default_factory=TierCosts)
    stage: int | None = None

    def schedule(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> TwoTier:
        """The cheapest schedule over both tiers."""
        both = both_bytes(capsule_bytes, tape_bytes)
        memory, disk = (
            self._slots(name, value, capsule_bytes)
            for name, value in (("memory", self.memory), ("disk", self.disk))
        )
        roomy = stage_for_snapshots(max(1, memory), *both) if both else 1
        alpha = stage_within(n, self.stage, roomy)
        if memory + disk == 0 and n > alpha:
            raise BudgetError(
                f"`memory={self.memory!r}` and `disk={self.disk!r}` hold no snapshot, "
                f"which takes {capsule_bytes} bytes "
                f"({format_bytes(capsule_bytes or 0)}). The least possible is that "
                "much on one of them."
            )
        per_step = self.costs
        per_stage = replace(
            per_step,
            forward=per_step.forward * alpha,
            tape=per_step.tape * alpha,
            backward=per_step.backward * alpha,
        )
        return TwoTier(n, memory, disk, per_stage, alpha)

    def predict(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Prediction:
        """What a run of n steps will do and cost, without running it."""
        schedule = self.schedule(n, capsule_bytes, tape_bytes)
        counts, sweeps = schedule.counts_and_sweeps()
        both = both_bytes(capsule_bytes, tape_bytes)
        return Prediction(
            schedule.stage,
            schedule.memory + schedule.disk,
            sweeps,
            counts,
            counts.peak_bytes(*both) if both else None,
            disk_bytes=counts.peak_disk * both[0] if both else None,
            cost=schedule.cost(),
            bound=schedule.bound(),
        )

    def _slots(self, name: str, value: int | str, capsule_bytes: int | None) -> int:
        if isinstance(value, int):
            return value
        if capsule_bytes is None:
            raise PlanError(
                f"`{name}={value!r}` counts bytes, and `capsule_bytes` was not given. "
                f"Pass it, or a number of snapshots, such as `{name}=20`."
            )
        return parse_bytes(value, name) // max(1, capsule_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainPlan(HostedPlan):
    """`retape.chain`."""

    _NAME: ClassVar[str] = "chain"

    forward: tuple[float, ...]
    states: tuple[int, ...]
    tapes: tuple[int, ...]
    budget: int
    units: int | None = None

    def schedule(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Chain:
        """The cheapest persistent schedule; the bytes are those of the plan."""
        if n != len(self.forward):
            raise PlanError(
                f"this chain has {len(self.forward)} steps and the run has {n}. Pass "
                "`forward`, `states` and `tapes` with one entry for every step."
            )
        return Chain(self.forward, self.states, self.tapes, self.budget, self.units)

    def predict(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Prediction:
        """What the run will do and cost, without running it."""
        schedule = self.schedule(n, capsule_bytes, tape_bytes)
        counts = schedule.counts()
        return Prediction(
            counts.longest_stage,
            counts.peak_snapshots,
            schedule.sweeps(),
            counts,
            schedule.peak_bytes(),
            cost=schedule.cost(),
            bound=schedule.bound(),
        )


def tiers(
    *,
    memory: int | str,
    disk: int | str,
    costs: TierCosts | None = None,
    stage: int | None = None,
    **others: object,
) -> Tiers:
    """A plan over memory and disk that weighs advances against writes and reads.

    Use it with a `TieredStore`, whose memory part has room for `memory`: a store of
    one kind keeps the snapshots of both tiers.

    Args:
        memory: Snapshots in memory, or bytes as a text such as "50 MB".
        disk: Snapshots on disk, or bytes as a text.
        costs: Of a step (`forward`, `tape`, `backward`) and of a snapshot's writes and
            reads, in any one unit of time. By default a disk's write and read cost as
            much as five steps.
        stage: alpha. By default as in `fixed_space`, for the snapshots in memory.
        **others: None; an option of another plan is refused by name.

    Example:
        >>> import retape
        >>> prediction = retape.tiers(memory=4, disk=10).predict(100)
        >>> prediction.advances, prediction.counts.peak_disk, prediction.cost
        (249, 5, 499.0)
    """
    refuse_others("tiers", others)
    for name, value in (("memory", memory), ("disk", disk)):
        if isinstance(value, str):
            parse_bytes(value, name)
        elif isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise PlanError(
                f"`{name}={value!r}` cannot be: pass a number of snapshots, none or "
                'more, or bytes as a text such as "50 MB".'
            )
    if memory == disk == 0:
        raise PlanError(
            "`memory=0` and `disk=0` cannot be: the start state needs a slot on one of "
            "them."
        )
    if costs is not None and not isinstance(costs, TierCosts):
        raise PlanError(f"`costs={costs!r}` cannot be: pass `retape.TierCosts(...)`.")
    return Tiers(
        memory=memory,
        disk=disk,
        costs=costs or TierCosts(),
        stage=check_stage(stage),
    )


def chain(
    *,
    forward: Sequence[float],
    states: Sequence[int],
    tapes: Sequence[int],
    budget: int | str,
    units: int | None = None,
    **others: object,
) -> ChainPlan:
    """A plan for steps that differ, in cost and in bytes, within a budget of bytes.

    Optimal among persistent schedules: a snapshot is kept until its own stage is
    reversed. `retape.schedule.Chain` has the recurrence.

    Args:
        forward: The cost of each step.
        states: The bytes of the state before each step.
        tapes: The bytes of the tape of each step.
        budget: Bytes for snapshots and tape together, or a text such as "512 MiB".
        units: Sizes are rounded up to multiples of budget / units. By default bytes are
            exact, which only small chains can afford.
        **others: None; an option of another plan is refused by name.

    Raises:
        BudgetError: When used, if the budget is too small; the least is named.

    Example:
        >>> import retape
        >>> plan = retape.chain(
        ...     forward=[1, 5, 1], states=[2, 9, 2], tapes=[3, 3, 3], budget=5
        ... )
        >>> plan.predict(3).cost, plan.predict(3).peak_bytes
        (7.0, 5)
    """
    refuse_others("chain", others)
    return ChainPlan(
        forward=tuple(forward),
        states=tuple(states),
        tapes=tuple(tapes),
        budget=parse_bytes(budget),
        units=units,
    )

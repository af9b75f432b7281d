"""The plan over memory and disk, and the function for any number of tiers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from retape._bytes import parse_bytes
from retape._errors import PlanError
from retape.plan._base import MANY_STEPS, both_bytes
from retape.plan._level_tiers import LevelTiers, level_tiers
from retape.plan._options import check_stage, refuse_others
from retape.plan._prediction import Prediction, tier_uses
from retape.plan._scheduled import ScheduledPlan
from retape.plan._tier_slots import (
    check_room,
    check_steps,
    far_slots,
    near_slots,
    stage_costs,
)
from retape.schedule import OnlineTiers, Tier, TierCosts, TwoTier
from retape.schedule._whole import whole


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Tiers(ScheduledPlan):
    """`retape.tiers`."""

    NAME: ClassVar[str] = "tiers"
    needs_length: ClassVar[bool] = False

    memory: int | str
    disk: int | str
    costs: TierCosts = field(default_factory=TierCosts)

    @property
    def far_tiers(self) -> tuple[str, ...]:
        return ("disk",) if self.disk else ()

    def schedule(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> TwoTier:
        """The cheapest schedule over both tiers."""
        check_steps(n)
        return TwoTier(n, *self._slots(n, capsule_bytes, tape_bytes))

    def online(
        self, capsule_bytes: int | None = None, tape_bytes: int | None = None
    ) -> OnlineTiers:
        """The same while the end of a run is not known."""
        return OnlineTiers(*self._slots(MANY_STEPS, capsule_bytes, tape_bytes))

    def _slots(
        self, n: int, capsule_bytes: int | None, tape_bytes: int | None
    ) -> tuple[int, int, TierCosts, int]:
        """The slots on both tiers, the costs of a stage and its length."""
        both = both_bytes(capsule_bytes, tape_bytes)
        alpha, memory = near_slots("memory", self.memory, n, self.stage, both)
        disk = far_slots("disk", self.disk, both)
        if n > alpha:
            said = f"`memory={self.memory!r}` and `disk={self.disk!r}`"
            check_room(said, memory + disk, capsule_bytes)
        return memory, disk, stage_costs(self.costs, alpha), alpha

    def predict(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Prediction:
        """Predict the counts and the cost of n steps, without running them."""
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
            tiers=tier_uses(counts, both[0] if both else None),
        )


def tiers(
    *,
    memory: int | str | None = None,
    disk: int | str | None = None,
    levels: Sequence[Tier] | None = None,
    costs: TierCosts | None = None,
    stage: int | None = None,
    **others: object,
) -> Tiers | LevelTiers:
    """A plan over tiers that weighs advances against writes and reads.

    Over memory and disk, or over any number of tiers: a device, the host, a disk, a
    remote store. Use it with a `TieredStore` of as many parts, whose near parts have
    room for what the plan puts there: a store of one kind keeps the snapshots of all
    tiers.

    Args:
        memory: Snapshots in memory, or bytes as a text such as "50 MB", which the
            snapshots there share with the tape of a stage.
        disk: Snapshots on disk, or bytes as a text.
        levels: In the place of both: the tiers, the nearest first, each with what a
            write and a read cost there. Bytes of the first one hold the tape, too.
        costs: Of a step (`forward`, `tape`, `backward`) and of a snapshot's writes and
            reads, in any one unit of time. By default a disk's write and read cost as
            much as five steps. With `levels`, of a step only.
        stage: alpha. By default as in `fixed_space`, for the snapshots in memory.
        **others: None; an option of another plan is refused by name.

    Raises:
        PlanError: If an option cannot be, or is another plan's.
        BudgetError: When the plan is used, if no tier holds a snapshot, or the
            memory not the tape of a stage.

    Examples:
        >>> import retape
        >>> prediction = retape.tiers(memory=4, disk=10).predict(100)
        >>> prediction.advances, prediction.counts.peak_disk, prediction.cost
        (249, 5, 499.0)
        >>> host = retape.Tier("host", 5, write=0.5, read=0.5)
        >>> remote = retape.Tier("remote", 1000, write=20, read=20)
        >>> plan = retape.tiers(levels=(retape.Tier("device", 3), host, remote))
        >>> prediction = plan.predict(1000)
        >>> prediction.advances, prediction.cost
        (3514, 5837.5)
        >>> prediction.tiers["remote"].peak
        5
    """
    refuse_others("tiers", others)
    if costs is not None and not isinstance(costs, TierCosts):
        raise PlanError(f"`costs={costs!r}` cannot be: pass `retape.TierCosts(...)`.")
    if levels is not None:
        _check_alone(memory, disk)
        return level_tiers(levels, costs or TierCosts(), check_stage(stage))
    for name, value in (("memory", memory), ("disk", disk)):
        if value is None:
            raise PlanError(
                f"the plan `tiers` needs `{name}`. Pass `memory` and `disk`, or the "
                "tiers as `levels=(retape.Tier(...), ...)`."
            )
        if isinstance(value, str):
            parse_bytes(value, name)
        elif not hasattr(value, "__index__") or isinstance(value, bool) or value < 0:
            raise PlanError(
                f"`{name}={value!r}` cannot be: pass a number of snapshots, none or "
                'more, or bytes as a text such as "50 MB".'
            )
    assert memory is not None
    assert disk is not None
    if memory == disk == 0:
        raise PlanError(
            "`memory=0` and `disk=0` cannot be: the start state needs a slot on one of "
            "them."
        )
    return Tiers(
        memory=memory if isinstance(memory, str) else whole("memory", memory),
        disk=disk if isinstance(disk, str) else whole("disk", disk),
        costs=costs or TierCosts(),
        stage=check_stage(stage),
    )


def _check_alone(memory: object, disk: object) -> None:
    """Refuse the two tiers beside `levels`."""
    for name, value in (("memory", memory), ("disk", disk)):
        if value is not None:
            raise PlanError(
                f"`{name}={value!r}` and `levels` cannot both be: `levels` are all of "
                f"the tiers. Leave one out, or pass a `retape.Tier({name!r}, ...)`."
            )

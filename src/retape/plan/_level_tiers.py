"""The plan over any number of tiers."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from retape._errors import PlanError
from retape.plan._base import both_bytes
from retape.plan._prediction import Prediction, Resolved, tier_uses
from retape.plan._scheduled import ScheduledPlan
from retape.plan._tier_slots import (
    check_room,
    check_steps,
    far_slots,
    near_slots,
    stage_costs,
)
from retape.schedule import Hierarchy, Tier, TierCosts
from retape.schedule._hierarchy import check_tiers


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LevelTiers(ScheduledPlan):
    """`retape.tiers(levels=...)`."""

    NAME: ClassVar[str] = "tiers"

    levels: tuple[Tier, ...]
    costs: TierCosts = field(default_factory=TierCosts)

    @property
    def tier_names(self) -> tuple[str, ...]:
        """The tiers, the nearest first: what a store of several parts is told."""
        return tuple(tier.name for tier in self.levels)

    @property
    def far_tiers(self) -> tuple[str, ...]:
        return self.tier_names[1:]

    def schedule(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Hierarchy:
        """The cheapest schedule over all tiers."""
        check_steps(n)
        both = both_bytes(capsule_bytes, tape_bytes)
        near, *others = self.levels
        name = f"levels: {near.name}"
        alpha, first = near_slots(name, near.snapshots, n, self.stage, both)
        counts = [first]
        for tier in others:
            counts.append(far_slots(f"levels: {tier.name}", tier.snapshots, both))
        if n > alpha:
            said = f"`levels={self.levels!r}`"
            check_room(said, sum(counts), capsule_bytes)
        levels = tuple(
            replace(tier, snapshots=count)
            for tier, count in zip(self.levels, counts, strict=True)
        )
        return Hierarchy(n, levels, stage_costs(self.costs, alpha), alpha)

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
        w, r = both or (0, 0)
        near = counts.tiers[self.tier_names[0]].peak * w + counts.longest_stage * r
        return Prediction(
            schedule.stage,
            sum(int(tier.snapshots) for tier in schedule.tiers),
            sweeps,
            counts,
            near if both else None,
            disk_bytes=counts.peak_disk * w if both and counts.peak_disk else None,
            cost=schedule.cost(),
            bound=schedule.bound(),
            tiers=tier_uses(counts, w if both else None),
        )

    def resolve(
        self,
        n: int | None,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Resolved:
        """Refused: this plan is no (alpha, d, t), and needs the number of steps."""
        if n is None:
            raise PlanError(
                "`tiers(levels=...)` needs the number of steps beforehand, since its "
                "schedule comes out of a dynamic programme, and this run tells its "
                "length only at its end. Use `retape.tiers(memory=..., disk=...)`, "
                "which places snapshots as the run goes on, with a `TieredStore` whose "
                "far part is one of several."
            )
        return super(LevelTiers, self).resolve(n, capsule_bytes, tape_bytes)


def level_tiers(levels: object, costs: TierCosts, stage: int | None) -> LevelTiers:
    """The plan over the tiers given.

    Raises:
        PlanError: If they are no tiers, or `costs` has costs that are the tiers' own.
    """
    if not isinstance(levels, Sequence) or isinstance(levels, str):
        raise PlanError(
            f"`levels={levels!r}` cannot be: pass the tiers, the nearest first, as in "
            '`levels=(retape.Tier("device", 3), retape.Tier("host", 20))`.'
        )
    given: Sequence[Any] = levels
    check_tiers(given)
    for name in ("memory_write", "memory_read", "disk_write", "disk_read"):
        value = getattr(costs, name)
        if value != getattr(TierCosts(), name):
            raise PlanError(
                f"`costs` says `{name}={value:g}`, and with `levels` each tier has its "
                f"own: pass it there, as in `retape.Tier({given[-1].name!r}, "
                f"{given[-1].snapshots!r}, write=..., read=...)`."
            )
    if not any(tier.snapshots for tier in given):
        raise PlanError(
            f"`levels={tuple(given)!r}` cannot be: the start state needs a slot on one "
            "of them."
        )
    return LevelTiers(levels=tuple(given), costs=costs, stage=stage)

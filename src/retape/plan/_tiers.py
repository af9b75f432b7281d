"""The plan over tiers: memory and a disk, or any number of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from retape._bytes import format_bytes, parse_bytes
from retape._errors import BudgetError, PlanError
from retape.plan._pick import MANY_STEPS, stage_for_snapshots
from retape.plan._prediction import Bytes, Resolved
from retape.plan._scheduled import ScheduledPlan, stage_within
from retape.schedule import Hierarchy, OnlineTiers
from retape.schedule._hierarchy import check_tiers
from retape.schedule._tier import StepCosts, Tier

DISK = 5.0
"""What a disk's write or read costs where nothing else is said, in steps."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Tiers(ScheduledPlan):
    """`retape.tiers`."""

    levels: tuple[Tier, ...] = ()
    costs: StepCosts = field(default_factory=StepCosts)

    @property
    def name(self) -> str:
        return "tiers"

    @property
    def needs_length(self) -> bool:
        """Two tiers can be filled while the end of a run is not known."""
        return len(self.levels) != 2

    @property
    def tier_names(self) -> tuple[str, ...]:
        """The tiers, the nearest first: what a store of several parts is told.

        Of memory and a disk it is told nothing: each part knows which it is.
        """
        names = tuple(tier.name for tier in self.levels)
        return () if names == ("memory", "disk") else names

    @property
    def far_tiers(self) -> tuple[str, ...]:
        return tuple(tier.name for tier in self.levels[1:] if tier.snapshots)

    @property
    def counts_bytes(self) -> bool:
        return any(isinstance(tier.snapshots, str) for tier in self.levels)

    def _schedule(self, n: int, sizes: Bytes | None) -> Hierarchy:
        """The cheapest schedule over all tiers."""
        check_steps(n)
        return Hierarchy(n, *self._filled(n, sizes))

    def _online(self, sizes: Bytes | None) -> OnlineTiers:
        if self.needs_length:
            self.resolve(None)
        return OnlineTiers(*self._filled(MANY_STEPS, sizes))

    def _filled(
        self, n: int, sizes: Bytes | None
    ) -> tuple[tuple[Tier, ...], StepCosts, int]:
        """The tiers with numbers of snapshots, the costs of a stage and its length."""
        near, *others = self.levels
        alpha, first = near_slots(near, n, self.stage, sizes)
        counts = [first, *(far_slots(tier, sizes) for tier in others)]
        if n > alpha:
            said = f"`levels={self.levels!r}`"
            _check_holds(said, sum(counts), sizes[0] if sizes else None)
        filled = tuple(
            replace(tier, snapshots=count)
            for tier, count in zip(self.levels, counts, strict=True)
        )
        return filled, stage_costs(self.costs, alpha), alpha

    def _resolve(self, n: int | None, sizes: Bytes | None) -> Resolved:
        """Refused: this plan is no (alpha, d, t), and may need the number of steps."""
        if n is None and self.needs_length:
            raise PlanError(
                f"`tiers` over {len(self.levels)} tiers needs the number of steps "
                "beforehand, since its schedule comes out of a dynamic programme, and "
                "this run tells its length only at its end. Use "
                "`retape.tiers(memory=..., disk=...)` or two `levels`, which are "
                "filled as the run goes on, with a `TieredStore` whose far part is one "
                "of several."
            )
        return super(Tiers, self)._resolve(n, sizes)


def tiers(
    *,
    memory: int | str | None = None,
    disk: int | str | None = None,
    levels: Sequence[Tier] | None = None,
    costs: StepCosts | None = None,
    stage: int | None = None,
) -> Tiers:
    """A plan over tiers that weighs advances against writes and reads.

    Over memory and disk, or over any number of tiers: a device, the host, a disk, a
    remote store. Use it with a `TieredStore` of as many parts, whose near parts have
    room for what the plan puts there: a store of one kind keeps the snapshots of all
    tiers.

    Args:
        memory: Snapshots in memory, or bytes as a text such as "50 MB", which the
            snapshots there share with the tape of a stage.
        disk: Snapshots on a disk whose write and read cost as much as five steps, or
            bytes as a text.
        levels: In the place of both: the tiers, the nearest first, each with what a
            write and a read cost there. Bytes of the first one hold the tape, too.
        costs: Of a step (`forward`, `tape`, `backward`), in the unit of the tiers'.
        stage: alpha. By default as in `fixed_space`, for the snapshots in memory.

    Raises:
        PlanError: If an option cannot be, or is another plan's.
        BudgetError: When the plan is used, if no tier holds a snapshot, or the
            memory not the tape of a stage.

    Examples:
        >>> import retape
        >>> prediction = retape.tiers(memory=4, disk=10).predict(100)
        >>> prediction.advances, prediction.peak_disk, prediction.cost
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
    if costs is not None and not isinstance(costs, StepCosts):
        raise PlanError(
            f"`costs={costs!r}` is not valid: pass `retape.StepCosts(...)`."
        )
    given = _memory_and_disk(memory, disk) if levels is None else levels
    if levels is not None:
        _check_alone(memory, disk)
    return Tiers(levels=_checked(given), costs=costs or StepCosts(), stage=stage)


def _memory_and_disk(memory: int | str | None, disk: int | str | None) -> list[Tier]:
    """The two tiers that have arguments of their own."""
    for name, value in (("memory", memory), ("disk", disk)):
        if value is None:
            raise PlanError(
                f"the plan `tiers` needs `{name}`. Pass `memory` and `disk`, or the "
                "tiers as `levels=(retape.Tier(...), ...)`."
            )
    assert memory is not None
    assert disk is not None
    return [Tier("memory", memory), Tier("disk", disk, DISK, DISK)]


def _checked(levels: Any) -> tuple[Tier, ...]:
    """The tiers, if they are some with room."""
    if not isinstance(levels, Sequence) or isinstance(levels, str):
        raise PlanError(
            f"`levels={levels!r}` is not valid: pass the tiers, the nearest first, as "
            "in "
            '`levels=(retape.Tier("device", 3), retape.Tier("host", 20))`.'
        )
    given: Sequence[Any] = levels
    check_tiers(given)
    if not any(tier.snapshots for tier in given):
        raise PlanError(
            f"`levels={tuple(given)!r}` is not valid: the start state needs a slot on "
            "one of them."
        )
    return tuple(given)


def _check_alone(memory: object, disk: object) -> None:
    """Refuse the two tiers beside `levels`."""
    for name, value in (("memory", memory), ("disk", disk)):
        if value is not None:
            raise PlanError(
                f"`{name}={value!r}` and `levels` cannot both be: `levels` are all of "
                f"the tiers. Leave one out, or pass a `retape.Tier({name!r}, ...)`."
            )


MOST_STEPS = 10**300
"""Costs are numbers of floating point."""


def check_steps(n: int) -> None:
    """Refuse more steps than costs can be summed over."""
    if n > MOST_STEPS:
        raise PlanError(
            "`n` has more than 300 digits, and costs are numbers of floating "
            "point, which end at 10^308. Pass fewer steps."
        )


def _check_holds(said: str, slots: int, capsule_bytes: int | None) -> None:
    """Refuse tiers that hold no snapshot.

    Args:
        said: The tiers, as the user wrote them.
        slots: Of all tiers.
        capsule_bytes: Of a snapshot.
    """
    if slots == 0:
        raise BudgetError(
            f"{said} hold no snapshot, which takes {capsule_bytes} bytes "
            f"({format_bytes(capsule_bytes or 0)}). The least possible is that "
            "much on one of them."
        )


def stage_costs(per_step: StepCosts, stage: int) -> StepCosts:
    """The costs of a stage, from those of a step."""
    return replace(
        per_step,
        forward=per_step.forward * stage,
        tape=per_step.tape * stage,
        backward=per_step.backward * stage,
    )


def near_slots(
    tier: Tier, n: int, stage: int | None, both: Bytes | None
) -> tuple[int, int]:
    """The stage length, and the slots of the tier that is nearest.

    Bytes are the peak: snapshots and the tape of a stage share them. The tape gets
    two thirds, as where slots are counted it gets twice the bytes of the snapshots.
    """
    name, amount = tier.name, tier.snapshots
    if isinstance(amount, int):
        held = max(1, amount)
        roomy = stage_for_snapshots(held, *both) if both else 1
        return stage_within(n, stage, roomy), amount
    w, r = both or _no_bytes(name, amount)
    most = parse_bytes(amount, name)
    alpha = stage_within(n, stage, 2 * most // (3 * r) if r else n)
    if alpha * r > most:
        raise BudgetError(
            f"`{name}={amount!r}` does not hold the tape of a stage, which "
            f"takes {alpha * r} bytes ({format_bytes(alpha * r)}) for "
            f"{alpha} steps. Pass at least that much.",
            alpha * r,
        )
    return alpha, (most - alpha * r) // max(1, w)


def far_slots(tier: Tier, both: Bytes | None) -> int:
    """The slots of another tier, where nothing but snapshots is kept."""
    name, amount = tier.name, tier.snapshots
    if isinstance(amount, int):
        return amount
    w, _ = both or _no_bytes(name, amount)
    return parse_bytes(amount, name) // max(1, w)


def _no_bytes(name: str, value: str) -> NoReturn:
    raise PlanError(
        f"`{name}={value!r}` counts bytes, and `capsule_bytes` and `tape_bytes` were "
        f"not given. Pass them, or a number of snapshots, such as `{name}=20`."
    )

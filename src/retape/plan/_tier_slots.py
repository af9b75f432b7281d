"""How many snapshots a tier holds, counted or in bytes, and what stages cost."""

from dataclasses import replace
from typing import NoReturn

from retape._bytes import format_bytes, parse_bytes
from retape._errors import BudgetError, PlanError
from retape.plan._prediction import Bytes
from retape.plan._scheduled import stage_within
from retape.plan._stage_length import stage_for_snapshots
from retape.schedule._tier import StepCosts, Tier
from retape.schedule._whole import whole

MOST_STEPS = 10**300
"""Costs are numbers of floating point."""


def check_steps(n: int) -> None:
    """Refuse more steps than costs can be summed over."""
    if whole("n", n) > MOST_STEPS:
        raise PlanError(
            "`n` has more than 300 digits, and costs are numbers of floating "
            "point, which end at 10^308. Pass fewer steps."
        )


def check_room(said: str, slots: int, capsule_bytes: int | None) -> None:
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

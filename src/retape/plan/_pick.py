"""From what a plan fixes to a stage length and a number of snapshots."""

from typing import TYPE_CHECKING, NoReturn

from retape._errors import PlanError
from retape.plan._budget_search import within_budget
from retape.plan._prediction import Bytes
from retape.plan._stage_length import (
    stage_for_segments,
    stage_for_snapshots,
    stage_for_sweeps,
)
from retape.schedule._binomial import least_balanced, least_snapshots

if TYPE_CHECKING:
    from retape.plan._base import Plan

MANY_STEPS = 1 << 40
"""What an unknown length is taken for where a plan needs a bound: 10^12 steps."""


def pick(plan: "Plan", n: int | None, both: Bytes | None) -> tuple[int, int]:
    """alpha and d for n >= 1 steps; `Plan.resolve` trims both to what n can use.

    Args:
        plan: What is fixed.
        n: The number of steps, or `None` while it is unknown.
        both: The bytes of a capsule and of the tape of a step, if they are known.

    Raises:
        PlanError: If the plan needs something that is not known.
        BudgetError: If the bytes do not suffice.
    """
    if plan.memory is not None:
        return _of_bytes(plan, n, both)
    if plan.snapshots is not None:
        # What waits on the host is none of the bytes that a tape is weighed against.
        held = 1 if plan.offload else plan.snapshots
        alpha = stage_for_snapshots(held, *both) if both else 1
        return plan.stage or alpha, plan.snapshots
    if plan.sweeps is not None:
        return _of_sweeps(plan, n, plan.sweeps, both)
    return _balanced(plan, MANY_STEPS if n is None else n, both)


def _of_bytes(plan: "Plan", n: int | None, both: Bytes | None) -> tuple[int, int]:
    if both is None:
        raise PlanError(
            f"`within({plan.memory})` counts bytes, and neither `capsule_bytes` "
            "nor `tape_bytes` was given. Pass them, or a plan that counts "
            "snapshots, such as `fixed_space(snapshots=20)`."
        )
    return within_budget(n, *both, plan.limit)


def _of_sweeps(
    plan: "Plan", n: int | None, sweeps: int, both: Bytes | None
) -> tuple[int, int]:
    if n is None:
        refuse_unknown_length(plan.name, "number of snapshots follows from it")
    if plan.split == "bisection":
        return _halved(plan, n, sweeps)
    alpha = plan.stage
    if alpha is None and sweeps == 1:
        alpha = stage_for_segments(n, *(both or (1, 1)))
    elif alpha is None:
        alpha = stage_for_sweeps(n, sweeps, *both) if both else 1
    return alpha, least_snapshots(-(-n // alpha), sweeps)


def _halved(plan: "Plan", n: int, sweeps: int) -> tuple[int, int]:
    shortest = -(-n // (1 << sweeps))
    alpha = shortest if plan.stage is None else plan.stage
    if alpha < shortest:
        raise PlanError(
            f"`fixed_time(sweeps={sweeps}, stage={alpha}, "
            'split="bisection")` cannot be kept over '
            f"{n} steps: halving {sweeps} times leaves stages of {shortest}. "
            f"Pass `stage={shortest}` or more, or split binomially."
        )
    return alpha, max(1, (-(-n // alpha) - 1).bit_length())


def _balanced(plan: "Plan", n: int, both: Bytes | None) -> tuple[int, int]:
    if plan.stage is not None or both is None:
        alpha = plan.stage or 1
        return alpha, _least(plan, -(-n // alpha))
    if plan.offload:
        alpha = stage_for_snapshots(1, *both)
        return alpha, _least(plan, -(-n // alpha))
    d = 1
    while _least(plan, -(-n // stage_for_snapshots(d, *both))) > d:
        d += 1
    return stage_for_snapshots(d, *both), d


def _least(plan: "Plan", stages: int) -> int:
    if plan.split == "bisection":
        return max(1, (stages - 1).bit_length())
    return max(1, least_balanced(stages))


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

"""Options of a call: checks and defaults."""

from retape._errors import PlanError
from retape.plan._base import Plan
from retape.plan._constructors import logarithmic
from retape.plan._support import VLAD
from retape.plan._support import check_plan as check

DEFAULT_PLAN: Plan = logarithmic(stage=100_000)
"""As many snapshots as sweeps, and stages of 100,000 steps."""

_TYPED_STAGE = 1_000_000
"""The same where stages are of typed code, whose tapes take a byte a step or less."""

_GENERAL_STAGE = 4_096
"""Steps of the general way that take as long as the host's work for a stage."""


def least_stage(plan: Plan, *, typed: bool) -> int:
    """The steps of a stage: those of the plan, or at least so many if it leaves them.

    A plan that leaves them open goes by bytes, and takes twenty steps of 1 microsecond
    where a state has three numbers; the host's work for a stage is some 60.

    Args:
        plan: The plan.
        typed: Whether the stage is of typed code.

    Returns:
        The steps, or 0 where their number is what the plan is about.
    """
    if typed and plan is DEFAULT_PLAN:
        return _TYPED_STAGE
    if not isinstance(plan, Plan) or plan.stage is not None:
        return getattr(plan, "stage", None) or 0
    if plan.sizes_stages or plan.budget is not None or not plan.is_tree:
        return 0
    return _TYPED_STAGE if typed else _GENERAL_STAGE


def check_engine(engine: str) -> None:
    """Refuse what is none of the three implementations."""
    if engine not in ("interpreter", "hybrid", "compiled"):
        raise PlanError(
            f"`engine={engine!r}` is not an implementation; pass "
            '"interpreter", "hybrid" or "compiled"'
        )


def check_plan(plan: Plan | None) -> Plan:
    """The plan, or the default one."""
    if plan is None:
        return DEFAULT_PLAN
    return check(plan, VLAD)

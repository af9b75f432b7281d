"""Options of a call: checks and defaults."""

from retape._errors import PlanError
from retape.plan._base import Plan
from retape.plan._logarithmic import logarithmic
from retape.plan._obeyers import VLAD
from retape.plan._obeyers import check_plan as check

DEFAULT_PLAN: Plan = logarithmic(stage=100_000)
"""As many snapshots as sweeps, and stages of 100,000 steps."""

TYPED_PLAN: Plan = logarithmic(stage=1_000_000)
"""The same where stages are of typed code, whose tapes take a few bytes a step."""


def typed_plan(plan: Plan) -> Plan:
    """The plan for runs of typed code: another one, if the caller has chosen none."""
    return TYPED_PLAN if plan is DEFAULT_PLAN else plan


def check_engine(engine: str) -> None:
    """Refuse what is none of the three implementations."""
    if engine not in ("interpreter", "hybrid", "compiled"):
        raise PlanError(
            f"`engine={engine!r}` is none of the three implementations; pass "
            '"interpreter", "hybrid" or "compiled"'
        )


def check_plan(plan: Plan | None) -> Plan:
    """The plan, or the default one."""
    if plan is None:
        return DEFAULT_PLAN
    return check(plan, VLAD)

"""What a caller may choose, and what is chosen otherwise."""

from retape._errors import PlanError
from retape._offload_plans import refuse_offload
from retape._plan import Plan
from retape._plans import logarithmic

DEFAULT_PLAN: Plan = logarithmic(stage=100_000)
"""As many snapshots as sweeps, and stages of 100,000 steps."""


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
    if not isinstance(plan, Plan):
        raise PlanError(
            f"`plan={plan!r}` is no plan; pass one such as "
            "`retape.logarithmic(stage=100_000)`"
        )
    refuse_offload(plan, "VLAD", "all its values are in the host's memory")
    return plan

"""Options of a call: checks and defaults."""

from retape._arguments import word_of
from retape.plan._base import Plan
from retape.plan._constructors import logarithmic
from retape.plan._support import VLAD
from retape.plan._support import check_plan as check

DEFAULT_PLAN: Plan = logarithmic(stage=100_000)
"""As many snapshots as sweeps, and stages of 100,000 steps."""


def check_engine(engine: str) -> None:
    """Refuse what is none of the three implementations."""
    word_of("engine", engine, ("interpreter", "hybrid", "compiled"))


def check_plan(plan: Plan | None) -> Plan:
    """The plan, or the default one."""
    if plan is None:
        return DEFAULT_PLAN
    return check(plan, VLAD)

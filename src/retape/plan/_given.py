"""Check that a plan is a plan, and say what to write where it is not."""

from __future__ import annotations

from typing import Any

from retape._bytes import parse_bytes
from retape._errors import PlanError
from retape.plan._base import Plan

_CALLS = {
    "fixed_space": "fixed_space(snapshots=8)",
    "fixed_time": "fixed_time(sweeps=2)",
    "logarithmic": "logarithmic()",
    "segments": "segments()",
    "within": 'within("1 GB")',
}
"""A call of each function that makes a plan."""


def check_given_plan(plan: Any) -> None:
    """Refuse what is no plan.

    Raises:
        PlanError: Says what to write instead.
    """
    if not isinstance(plan, Plan):
        raise PlanError(f"`plan={plan!r}` is not a plan. {_advice(plan)}")


def check_no_plan(name: str, value: Any) -> None:
    """Refuse a plan that stands in the place of another argument.

    Raises:
        PlanError: Says where a plan belongs.
    """
    if isinstance(value, Plan):
        raise PlanError(
            f"`{name}={value!r}` is a plan, which is passed by name. Write "
            "`plan=...` in front of it."
        )


def _advice(plan: Any) -> str:
    name = getattr(plan, "__name__", plan)
    if isinstance(name, str) and name.removeprefix("retape.") in _CALLS:
        return f"Write `plan=retape.{_CALLS[name.removeprefix('retape.')]}`."
    try:
        parse_bytes(plan)
    except (PlanError, TypeError):
        return (
            "Pass one that `retape.fixed_space`, `fixed_time`, `logarithmic`, "
            "`segments` or `within` makes."
        )
    said = f"For a budget of bytes write `plan=retape.within({plan!r})`"
    if isinstance(plan, int):
        return f"{said}, for snapshots `plan=retape.fixed_space(snapshots={plan!r})`."
    return f"{said}."

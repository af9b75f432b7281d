"""From a user's plan to the sizes of one sweep."""

from __future__ import annotations

from dataclasses import replace

from ..._errors import BudgetError
from ..._plan import Plan
from ..._plans import Within, logarithmic
from ._compile import Compiled
from ._state import Settings

_LONG = 1 << 16
"""A stage so long that blocks which run once do not weigh in its bytes per step."""


def default_plan() -> Plan:
    """What is used where the user says nothing: memory and time both logarithmic."""
    return logarithmic()


def bytes_per_step(compiled: Compiled) -> int:
    """Bytes of tape that one more step in a stage takes."""
    more = compiled.tape_bytes(2 * _LONG) - compiled.tape_bytes(_LONG)
    return -(-more // _LONG)


def fixed_bytes(compiled: Compiled) -> int:
    """Bytes that any sweep needs: registers, cotangents, kept values, what is held."""
    held = compiled.layout.capsule_bytes() if compiled.program.length is None else 0
    return compiled.layout.fixed_bytes() + held


def settle(plan: Plan | None, compiled: Compiled) -> Settings:
    """Choose the number of snapshots and the stage length for this program.

    Raises:
        PlanError: If the plan needs the number of steps and only a run can tell it.
        BudgetError: If a budget is below the least possible, which is named.
    """
    plan = plan or default_plan()
    n = compiled.program.length
    w, r = compiled.layout.capsule_bytes(), max(1, bytes_per_step(compiled))
    alpha, d, t = _spend(plan, compiled).resolve(n, w, r)
    d = max(d, 1)
    # Placing snapshots without knowing the end is as good as knowing it up to C(s+2, 2)
    # stages and nearly so beyond, where counting first would cost every step once.
    forward = "online" if plan.split == "binomial" else "count"
    return Settings(d, alpha, plan.split, forward, t)


def _spend(plan: Plan, compiled: Compiled) -> Plan:
    """The plan with what the program needs anyway taken off a budget of bytes."""
    if not isinstance(plan, Within):
        return plan
    fixed = fixed_bytes(compiled)
    least = fixed + compiled.layout.capsule_bytes() + compiled.tape_bytes(1)
    if plan.budget < least:
        raise BudgetError(
            f"`within({plan.budget})` is too little for this program: its registers, "
            f"their cotangents, one snapshot and the tape of one step take {least} "
            f"bytes. Pass `retape.within({least})` or more."
        )
    return replace(plan, budget=plan.budget - fixed)

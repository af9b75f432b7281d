"""From a user's plan to the sizes of one sweep."""

from __future__ import annotations

from dataclasses import replace

from ..._errors import BudgetError
from ..._plan import Plan
from ..._plans import Within, fixed_space, logarithmic
from ._compile import Compiled
from ._state import Settings
from ._work import work_bytes

_LONG = 1 << 16
"""A stage so long that blocks which run once do not weigh in its bytes per step."""


def default_plan() -> Plan:
    """What is used where the user says nothing: memory and time both logarithmic."""
    return logarithmic()


def bytes_per_step(compiled: Compiled) -> int:
    """Bytes of tape that one more step in a stage takes."""
    more = compiled.tape_bytes(2 * _LONG) - compiled.tape_bytes(_LONG)
    return -(-more // _LONG)


def snapshot_bytes(compiled: Compiled) -> int:
    """Bytes of one more snapshot: the capsule, and the controller's entries for it.

    A stage number, a slot, a program counter, the sweeps left; while the end is
    unknown, two dozen more numbers that the placement computes with.
    """
    return compiled.layout.capsule_bytes() + (
        28 if compiled.program.length is not None else 208
    )


def fixed_bytes(compiled: Compiled) -> int:
    """Bytes that any sweep needs: registers, cotangents, kept values, what is held."""
    held = compiled.layout.capsule_bytes() if compiled.program.length is None else 0
    return compiled.layout.fixed_bytes() + held + work_bytes(compiled)


def settle(plan: Plan | None, compiled: Compiled) -> Settings:
    """Choose the number of snapshots and the stage length for this program.

    Raises:
        PlanError: If the plan needs the number of steps and only a run can tell it.
        BudgetError: If a budget is below the least possible, which is named.
    """
    plan = plan or default_plan()
    n = compiled.program.length
    w, r = snapshot_bytes(compiled), max(1, bytes_per_step(compiled))
    alpha, d, t = _spend(plan, compiled).resolve(n, w, r)
    d = max(d, 1)
    # Placing snapshots without knowing the end is as good as knowing it up to C(s+2, 2)
    # stages and nearly so beyond, where counting first would cost every step once.
    forward = "online" if plan.split == "binomial" else "count"
    return Settings(d, alpha, plan.split, forward, t)


def exactly(settings: Settings) -> Plan:
    """The plan that asks for these very sizes, whatever the bytes."""
    return fixed_space(
        snapshots=settings.snapshots, stage=settings.stage, split=settings.split
    )


def _spend(plan: Plan, compiled: Compiled) -> Plan:
    """The plan with what the program needs anyway taken off a budget of bytes."""
    if not isinstance(plan, Within):
        return plan
    fixed = fixed_bytes(compiled)
    least = fixed + snapshot_bytes(compiled) + compiled.tape_bytes(1)
    if plan.budget < least:
        raise BudgetError(
            f"`within({plan.budget})` is too little for this program: its registers, "
            f"their cotangents, one snapshot and the tape of one step take {least} "
            f"bytes. Pass `retape.within({least})` or more."
        )
    return replace(plan, budget=plan.budget - fixed)

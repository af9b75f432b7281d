"""Limits from the user's arguments, and from what a device has left.

They are bytes, or snapshots and a stage length.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from retape._bytes import parse_bytes
from retape._errors import PlanError, UnsupportedError
from retape.plan._base import Plan
from retape.plan._support import RECOMPUTE, check_plan

BACKWARD_NUMBERS = 1024
"""Bytes of the seed of the backward and of the single numbers that formulas make."""


SMALL_BUDGET = 10**6
"""A budget of no more bytes is one of tensors alone, if it and the record have room."""


_RECORD_SHARE, _RECORD_BYTES = 1.06, 10_000


def room_for_tensors(memory: int, bookkeeping: int) -> int:
    """The bytes of a budget that are left for tensors, beside a record on the host.

    They and the record take no more than the budget, or a megabyte if that is more: a
    small budget is for tensors, as long as a program has some hundred operators. It is
    the smaller, the more the record takes, and larger in a larger budget.

    Examples:
        >>> room_for_tensors(5_000_000, 300_000), room_for_tensors(20_000, 300_000)
        (4700000, 20000)
    """
    return min(memory, max(memory, SMALL_BUDGET) - bookkeeping)


def record_in(memory: int, bare: int, notes: int, tensors: int) -> int:
    """The bytes of a record in a budget in which not all can be held.

    Args:
        memory: The budget.
        bare: Bytes of the record where nothing is held.
        notes: Those of its notes where all is.
        tensors: Bytes of all that is held then.

    Examples:
        >>> record_in(5_000_000, 300_000, 100_000, 10_000_000)
        346535
    """
    if not notes:
        return bare
    # Of each byte that is left some go to the notes on what the others hold.
    share = notes / max(1, tensors)
    held = min(memory, (max(memory, SMALL_BUDGET) - bare) / (1 + share), tensors)
    return bare + round(share * max(0, held))


def budget_for(tensors: int, bookkeeping: int) -> int:
    """The smallest budget with room for some bytes of tensors beside a record.

    Examples:
        >>> budget_for(4_700_000, 300_000), budget_for(20_000, 300_000)
        (5000000, 20000)
    """
    together = tensors + bookkeeping
    return tensors if together <= SMALL_BUDGET else together


def ample_budget(tensors: int, bookkeeping: int) -> int:
    """A budget with room for tensors also where the record turns out a little larger.

    Its tables grow by leaps, it is counted ahead of its growth, and what is held in
    another run has notes.
    """
    if not bookkeeping:
        return tensors
    return budget_for(tensors, round(_RECORD_SHARE * bookkeeping) + _RECORD_BYTES)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the memory of a run.

    Attributes:
        memory: Bytes, or `None`.
        snapshots: The most snapshots, the start included, or `None`.
        stage: Steps in a stage, where snapshots are counted.
        keep_tail: Keep the values saved last until the backward asks for them.
    """

    memory: int | None
    snapshots: int | None
    stage: int
    keep_tail: bool = True


def check_callable(value: object, advice: str) -> None:
    """Refuse what is no function.

    Raises:
        PlanError: If it cannot be called.
    """
    if not callable(value):
        raise PlanError(
            f"A value of type `{type(value).__name__}` was passed, which cannot be "
            f"called. {advice}"
        )


def read_bytes(memory: int | float | str | Plan) -> int:
    """A number of bytes, also from text such as `"2GB"` or from `retape.within`.

    Raises:
        PlanError: If it is not a positive amount.

    Examples:
        >>> import retape
        >>> read_bytes("1.5kB"), read_bytes("1KiB"), read_bytes(retape.within(7))
        (1500, 1024, 7)
    """
    if isinstance(memory, Plan) and memory.is_tree and memory.budget is not None:
        return memory.budget
    return parse_bytes(memory, "memory")  # pyright: ignore[reportArgumentType]


def read_plan(plan: Plan, stage: int) -> tuple[int | None, int | None, int]:
    """The bytes, or the snapshots and the stage length, that a plan means.

    Raises:
        PlanError: If it is no plan, or one that needs the number of steps beforehand.

    Examples:
        >>> import retape
        >>> read_plan(retape.fixed_space(snapshots=3), stage=64)
        (None, 3, 64)
        >>> read_plan(retape.within("1kB"), stage=64)
        (1000, None, 64)
    """
    plan = check_plan(plan, RECOMPUTE)
    if plan.budget is not None:
        return plan.budget, None, stage
    stage = plan.stage or stage
    return None, plan.with_stage(stage).resolve(None).d, stage


# Gradients that are not there yet, buffers of kernels and what allocators lose in
# between are not in a budget.
_PART_OF_FREE = 0.75
_CGROUP = Path("/sys/fs/cgroup")


def automatic_budget() -> int:
    """A budget from what is free now: three quarters of it, in two binary digits.

    Rounded so, the budgets of the steps of a training loop are one, and what was
    learned about the program in it holds.

    Raises:
        UnsupportedError: If the system does not say what is free.
    """
    free = int(_PART_OF_FREE * _free_bytes())
    digit = 1 << max(0, free.bit_length() - 2)
    return max(digit, free // digit * digit)


def _free_bytes() -> int:
    """Bytes free on the accelerator in use, else in the machine or container."""
    if torch.cuda.is_available():
        free, _ = torch.cuda.mem_get_info()
        return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    found = [each for each in (_machine(), _container()) if each is not None]
    if not found:
        raise UnsupportedError(
            f'`memory="auto"` cannot tell on `{sys.platform}` what is free. Give bytes.'
        )
    return min(found)


def _machine() -> int | None:
    """Bytes that the machine can give without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        names = getattr(os, "sysconf_names", {})
        if "SC_AVPHYS_PAGES" not in names:
            return None
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    table = {name: rest.split()[0] for name, rest in (x.split(":") for x in lines)}
    return 1024 * int(table["MemAvailable"])


def _container() -> int | None:
    """Bytes left below the limit of a control group, if there is one."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = (_CGROUP / "memory.current").read_text()
    except OSError:
        return None
    return None if limit == "max" else max(0, int(limit) - int(used))

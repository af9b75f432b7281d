"""What the user allows: bytes, or a number of snapshots and a stage length."""

import re
from dataclasses import dataclass, replace

from retape._plan import Plan
from retape._plans import FixedSpace, Logarithmic, Within

from ._errors import PlanError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_PATTERN = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([KMGT]?)(i?)B?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a run may keep.

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


def read_bytes(memory: int | float | str) -> int:
    """A number of bytes, also from text such as `"2GB"` or `"512MiB"`.

    Raises:
        PlanError: If it is not a positive amount.

    Example:
        >>> read_bytes("1.5kB"), read_bytes("1KiB")
        (1500, 1024)
    """
    if isinstance(memory, str):
        match = _PATTERN.fullmatch(memory)
        if match is None:
            raise PlanError(
                f"`memory={memory!r}` is not an amount of memory. Write a number of "
                'bytes, or text such as "2GB" or "512MiB".'
            )
        number, unit, binary = match.groups()
        amount = float(number) * (_BINARY if binary else _UNITS)[unit.upper()]
    else:
        amount = float(memory)
    if not 1 <= amount < float("inf"):
        raise PlanError(
            f"`memory={memory!r}` is not a positive number of bytes; give at least 1."
        )
    return int(amount)


def read_plan(plan: Plan, stage: int) -> tuple[int | None, int | None, int]:
    """The bytes, or the snapshots and the stage length, that a plan means.

    Raises:
        PlanError: If it needs the number of steps beforehand, or is none of ours.

    Example:
        >>> import retape
        >>> read_plan(retape.fixed_space(snapshots=3), stage=64)
        (None, 3, 64)
        >>> read_plan(retape.within("1kB"), stage=64)
        (1000, None, 64)
    """
    if isinstance(plan, Within):
        return plan.budget, None, stage
    if isinstance(plan, FixedSpace | Logarithmic):
        if plan.split != "binomial":
            raise PlanError(
                f'`split="{plan.split}"` is not offered for a run of unknown length: '
                "snapshots are placed as it goes on. Leave `split` out."
            )
        stage = plan.stage or stage
        return None, replace(plan, stage=stage).resolve(None).d, stage
    if isinstance(plan, Plan):
        plan.resolve(None)  # says by name what it lacks
    raise PlanError(
        f"`plan={plan!r}` is not a plan for `recompute`, which learns the length of a "
        "run at its end. Pass `retape.fixed_space(snapshots=...)`, "
        "`retape.logarithmic()` or `retape.within(...)`; a schedule of functions is "
        "for `checkpoint_sequential`."
    )

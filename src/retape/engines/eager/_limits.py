"""What the user allows: bytes, or a number of snapshots and a stage length."""

from dataclasses import dataclass, replace

from retape._bytes import parse_bytes
from retape._offload_plans import refuse_offload
from retape._plan import Plan
from retape._plans import FixedSpace, Logarithmic, Within

from ._errors import PlanError

BACKWARD_NUMBERS = 1024
"""Bytes of the seed of the backward and of the single numbers that formulas make."""


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
    if isinstance(memory, float) and memory.is_integer():
        memory = int(memory)
    return parse_bytes(memory, "memory")  # pyright: ignore[reportArgumentType]


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
    refuse_offload(plan, "`retape.torch`", "a `store` says where snapshots go")
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

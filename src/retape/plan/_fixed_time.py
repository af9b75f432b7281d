"""The plan that advances each step a fixed number of times at most."""

from dataclasses import dataclass
from typing import ClassVar

from retape._errors import PlanError
from retape.plan._base import refuse_unknown_length
from retape.plan._options import (
    Memory,
    check_count,
    check_offload,
    check_split,
    check_stage,
    refuse_others,
)
from retape.plan._prediction import Bytes
from retape.plan._stage_length import stage_for_sweeps
from retape.plan._tree_plan import TreePlan
from retape.schedule import Split, least_snapshots


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FixedTime(TreePlan):
    """`retape.fixed_time`."""

    NAME: ClassVar[str] = "fixed_time"
    needs_length: ClassVar[bool] = True

    sweeps: int

    def _pick(self, n: int | None, both: Bytes | None) -> tuple[int, int]:
        if n is None:
            refuse_unknown_length(self.NAME, "number of snapshots follows from it")
        if self.split == "bisection":
            return self._bisect(n)
        alpha = self.stage
        if alpha is None:
            alpha = stage_for_sweeps(n, self.sweeps, *both) if both else 1
        return alpha, least_snapshots(-(-n // alpha), self.sweeps)

    def _bisect(self, n: int) -> tuple[int, int]:
        shortest = -(-n // (1 << self.sweeps))
        alpha = shortest if self.stage is None else self.stage
        if alpha < shortest:
            raise PlanError(
                f"`fixed_time(sweeps={self.sweeps}, stage={alpha}, "
                'split="bisection")` cannot be kept over '
                f"{n} steps: halving {self.sweeps} times leaves stages of {shortest}. "
                f"Pass `stage={shortest}` or more, or split binomially."
            )
        return alpha, max(1, (-(-n // alpha) - 1).bit_length())


def fixed_time(
    *,
    sweeps: int,
    stage: int | None = None,
    split: Split = "binomial",
    offload: Memory | None = None,
    **others: object,
) -> FixedTime:
    """A plan that advances each step at most `sweeps` times: space grows like n^(1/t).

    Args:
        sweeps: t.
        stage: alpha. By default the one of least peak bytes where the bytes of a
            snapshot and of a taped step are known, and 1 where they are not.
        split: Where intervals are cut.
        offload: `"host"` to keep snapshots in the host's memory, for gradients of
            `retape.jax`; they are then none of the device's bytes.
        **others: None; an option of another plan is refused by name.

    Raises:
        PlanError: If an option cannot be, or is another plan's.

    Examples:
        >>> import retape
        >>> retape.fixed_time(sweeps=3).resolve(1000)
        Resolved(alpha=1, d=17, t=3)
    """
    refuse_others("fixed_time", others)
    why = "is how often a step may be advanced, at least once"
    sweeps = check_count("sweeps", sweeps, why)
    return FixedTime(
        sweeps=sweeps,
        stage=check_stage(stage),
        split=check_split(split),
        offload=check_offload(offload),
    )

"""The plan with as many snapshots as sweeps."""

from dataclasses import dataclass
from typing import ClassVar

from retape.plan._base import MANY_STEPS
from retape.plan._options import (
    Memory,
    check_offload,
    check_split,
    check_stage,
    refuse_others,
)
from retape.plan._prediction import Bytes
from retape.plan._stage_length import stage_for_snapshots
from retape.plan._tree_plan import TreePlan
from retape.schedule import Split, least_balanced


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Logarithmic(TreePlan):
    """`retape.logarithmic`."""

    NAME: ClassVar[str] = "logarithmic"

    def _pick(self, n: int | None, both: Bytes | None) -> tuple[int, int]:
        n = MANY_STEPS if n is None else n
        if self.stage is not None or both is None:
            alpha = self.stage or 1
            return alpha, self._least(-(-n // alpha))
        if self.offload:
            alpha = stage_for_snapshots(1, *both)
            return alpha, self._least(-(-n // alpha))
        d = 1
        while self._least(-(-n // stage_for_snapshots(d, *both))) > d:
            d += 1
        return stage_for_snapshots(d, *both), d

    def _least(self, stages: int) -> int:
        if self.split == "bisection":
            return max(1, (stages - 1).bit_length())
        return max(1, least_balanced(stages))


def logarithmic(
    *,
    stage: int | None = None,
    split: Split = "binomial",
    offload: Memory | None = None,
    **others: object,
) -> Logarithmic:
    """A plan with as many snapshots as sweeps, both growing like log n.

    Args:
        stage: alpha. By default max(1, floor(2*d*w/r)) as in `fixed_space`, with the
            least d that suffices; 1 without bytes.
        split: Where intervals are cut.
        offload: `"host"` to keep snapshots in the host's memory, for gradients of
            `retape.jax`; they are then none of the device's bytes.
        **others: None; an option of another plan is refused by name.

    Raises:
        PlanError: If an option cannot be, or is another plan's.

    Examples:
        >>> import retape
        >>> retape.logarithmic().resolve(1000)
        Resolved(alpha=1, d=7, t=6)
    """
    refuse_others("logarithmic", others)
    return Logarithmic(
        stage=check_stage(stage),
        split=check_split(split),
        offload=check_offload(offload),
    )

"""The plan of a single sweep: segments of equal length."""

from dataclasses import dataclass
from typing import ClassVar

from retape.plan._base import refuse_unknown_length
from retape.plan._options import Memory, check_offload, check_stage, refuse_others
from retape.plan._prediction import Bytes
from retape.plan._stage_length import stage_for_segments
from retape.plan._tree_plan import TreePlan


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Segments(TreePlan):
    """`retape.segments`."""

    NAME: ClassVar[str] = "segments"
    needs_length: ClassVar[bool] = True
    sizes_stages: ClassVar[bool] = True

    def _pick(self, n: int | None, both: Bytes | None) -> tuple[int, int]:
        if n is None:
            refuse_unknown_length(self.NAME, "number of snapshots follows from it")
        alpha = self.stage or stage_for_segments(n, *(both or (1, 1)))
        return alpha, max(0, -(-n // alpha) - 1)


def segments(
    *, stage: int | None = None, offload: Memory | None = None, **others: object
) -> Segments:
    """A plan that advances each step once (t = 1): space grows like sqrt(n).

    Args:
        stage: alpha. By default the one of least peak bytes; without bytes a snapshot
            is taken to be as large as the tape of a step, which gives sqrt(n).
        offload: `"host"` to keep snapshots in the host's memory, for gradients of
            `retape.jax`; they are then none of the device's bytes.
        **others: None; an option of another plan is refused by name.

    Raises:
        PlanError: If an option cannot be, or is another plan's.

    Examples:
        >>> import retape
        >>> retape.segments().resolve(1024)
        Resolved(alpha=32, d=31, t=1)
    """
    refuse_others("segments", others)
    return Segments(stage=check_stage(stage), offload=check_offload(offload))

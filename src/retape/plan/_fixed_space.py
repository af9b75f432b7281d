"""The plan with a fixed number of snapshots."""

from collections.abc import Set
from dataclasses import dataclass
from typing import ClassVar

from retape._errors import PlanError
from retape.plan._mixed import MixedSpace, mixed_space
from retape.plan._options import (
    Kind,
    Memory,
    check_count,
    check_offload,
    check_split,
    check_stage,
    keeps_tapes,
    refuse_others,
)
from retape.plan._prediction import Bytes
from retape.plan._stage_length import stage_for_snapshots
from retape.plan._tree_plan import TreePlan
from retape.schedule import Split


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FixedSpace(TreePlan):
    """`retape.fixed_space`."""

    NAME: ClassVar[str] = "fixed_space"

    snapshots: int

    def _pick(self, n: int | None, both: Bytes | None) -> tuple[int, int]:
        if self.stage is not None:
            return self.stage, self.snapshots
        # What waits on the host is none of the bytes that a tape is weighed against.
        held = 1 if self.offload else self.snapshots
        alpha = stage_for_snapshots(held, *both) if both else 1
        return alpha, self.snapshots


def fixed_space(
    *,
    snapshots: int,
    stage: int | None = None,
    split: Split = "binomial",
    store: Set[Kind] = frozenset({"state"}),
    offload: Memory | None = None,
    **others: object,
) -> FixedSpace | MixedSpace:
    """A plan with a fixed number of snapshots: time grows like n^(1 + 1/d).

    Args:
        snapshots: d, the start state's slot included.
        stage: alpha. By default max(1, floor(2*d*w/r)) where the bytes w of a snapshot
            and r of a taped step are known, so that the tape has twice the bytes of the
            snapshots, or with `offload` of one; 1 where they are not.
        split: Where intervals are cut.
        store: What slots may hold: `{"state"}`, or `{"state", "tape"}` for a mixed
            schedule, which keeps the tape of a stage where that saves advances. The
            number of steps must then be known, and the machine must be able to hold
            tapes: `retape.adjoint` is. A tape takes as many slots as its bytes do
            (one, without bytes), and stages are as long as fits a slot.
        offload: `"host"` to keep snapshots in the host's memory, for gradients of
            `retape.jax`; they are then none of the device's bytes.
        **others: None; an option of another plan is refused by name.

    Raises:
        PlanError: If an option cannot be, is another plan's, or does not go with tapes.

    Examples:
        >>> import retape
        >>> retape.fixed_space(snapshots=20).resolve(1000)
        Resolved(alpha=1, d=20, t=3)
        >>> retape.fixed_space(snapshots=20).predict(1000).advances
        2747
        >>> mixed = retape.fixed_space(snapshots=20, store={"state", "tape"})
        >>> mixed.predict(1000).advances
        1823
    """
    refuse_others("fixed_space", others)
    snapshots = check_count(
        "snapshots", snapshots, "holds the start state, so there is at least one"
    )
    if keeps_tapes(store):
        if offload is not None:
            raise PlanError(
                f"`offload={offload!r}` does not go with tapes in slots, which are for "
                "`retape.adjoint` and `retape.driver.run`: there a store says where "
                "snapshots are. Leave one of the two out."
            )
        return mixed_space(snapshots, check_stage(stage), check_split(split))
    return FixedSpace(
        snapshots=snapshots,
        stage=check_stage(stage),
        split=check_split(split),
        offload=check_offload(offload),
    )

"""The plan whose slots hold states or tapes."""

from dataclasses import dataclass
from typing import ClassVar

from retape._errors import PlanError
from retape.plan._base import Prediction, both_bytes
from retape.plan._scheduled import ScheduledPlan, stage_within
from retape.schedule import Mixed
from retape.schedule._whole import whole


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MixedSpace(ScheduledPlan):
    """`retape.fixed_space(store={"state", "tape"})`."""

    NAME: ClassVar[str] = "fixed_space"
    keeps_tapes: ClassVar[bool] = True

    snapshots: int

    def schedule(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Mixed:
        """The mixed schedule; with bytes, slots are shared out by bytes."""
        n, both = whole("n", n), both_bytes(capsule_bytes, tape_bytes)
        w, r = both if both and min(both) > 0 else (1, 1)
        alpha = stage_within(n, self.stage, w // r)
        # Whole units, rounded so that bytes are kept: a tape takes several slots, or
        # a state's bytes hold several tapes.
        tape = -(-alpha * r // w) if both else 1
        state = min(_FINEST, max(1, w // (alpha * r))) if both else 1
        return Mixed(n, self.snapshots * state, state, tape, alpha)

    def predict(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Prediction:
        """Predict a run of n steps, without running it."""
        schedule = self.schedule(n, capsule_bytes, tape_bytes)
        counts, sweeps = schedule.counts_and_sweeps()
        both, peak = both_bytes(capsule_bytes, tape_bytes), None
        if both:
            w, r = both
            held = schedule.heaviest(w, schedule.stage * r)
            peak = held + counts.longest_stage * r
        return Prediction(
            schedule.stage,
            self.snapshots,
            sweeps,
            counts,
            peak,
            bound=schedule.bound(),
        )

    def __repr__(self) -> str:
        given = f"snapshots={self.snapshots}"
        given += "" if self.stage is None else f", stage={self.stage}"
        return f"retape.fixed_space({given}, store={{'state', 'tape'}})"

    @property
    def _shown(self) -> str:
        return 'fixed_space(store={"state", "tape"})'


_FINEST = 8
"""The most tapes that are counted into one state's bytes; more make large tables."""


def mixed_space(snapshots: int, stage: int | None, split: str, tree: str) -> MixedSpace:
    """`fixed_space` with tapes in its slots; what cannot go with them is refused."""
    if (split, tree) != ("binomial", "n-ary"):
        raise PlanError(
            f"`split={split!r}` and `tree={tree!r}` do not go with tapes in slots: "
            "where to cut comes out of a dynamic programme. Leave both out."
        )
    return MixedSpace(snapshots=snapshots, stage=stage)

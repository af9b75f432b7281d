"""The plan whose slots hold states or tapes."""

from dataclasses import dataclass
from typing import ClassVar

from retape._errors import PlanError
from retape.plan._pick import MANY_STEPS
from retape.plan._prediction import Bytes
from retape.plan._scheduled import ScheduledPlan, stage_within
from retape.schedule import Mixed, OnlineMixed


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MixedSpace(ScheduledPlan):
    """`retape.fixed_space(store={"state", "tape"})`."""

    keeps_tapes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super(MixedSpace, self).__post_init__()
        if self.split != "binomial":
            raise PlanError(
                f"`split={self.split!r}` does not go with tapes in slots: where to cut "
                "comes out of a dynamic programme. Leave it out."
            )

    @property
    def needs_length(self) -> bool:
        """States are placed while the end is not known, and tapes on the way back."""
        return False

    def _schedule(self, n: int, sizes: Bytes | None) -> Mixed:
        """The mixed schedule; with bytes, slots are shared out by bytes."""
        return Mixed(n, *self._room(n, sizes))

    def _online(self, sizes: Bytes | None) -> OnlineMixed:
        return OnlineMixed(*self._room(MANY_STEPS, sizes))

    def _room(self, n: int, sizes: Bytes | None) -> tuple[int, int, int, int]:
        """What all slots, a state and a tape take, and the stage length."""
        w, r = sizes if sizes and min(sizes) > 0 else (1, 1)
        alpha = stage_within(n, self.stage, w // r)
        # Whole units, rounded so that bytes are kept: a tape takes several slots, or
        # a state's bytes hold several tapes.
        tape = -(-alpha * r // w) if sizes else 1
        state = min(_FINEST, max(1, w // (alpha * r))) if sizes else 1
        assert self.snapshots is not None, "`fixed_space` has it"
        return self.snapshots * state, state, tape, alpha

    def __repr__(self) -> str:
        given = f"snapshots={self.snapshots}"
        given += "" if self.stage is None else f", stage={self.stage}"
        return f"retape.fixed_space({given}, store={{'state', 'tape'}})"

    @property
    def _shown(self) -> str:
        return 'fixed_space(store={"state", "tape"})'


_FINEST = 8
"""The most tapes that are counted into one state's bytes; more make large tables."""

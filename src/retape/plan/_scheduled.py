"""Plans that only their schedule tells: dynamic programmes.

Most need the number of steps, and whoever obeys does so action by action:
`retape.adjoint`, `retape.driver.run`, VLAD and chains of PyTorch functions. An engine
that makes its own schedule from (alpha, d, t) asks `resolve`, which refuses.
"""

from dataclasses import dataclass
from typing import ClassVar

from retape._errors import PlanError
from retape.plan._base import Plan
from retape.plan._pick import refuse_unknown_length
from retape.plan._prediction import Bytes, Resolved


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScheduledPlan(Plan):
    """A plan whose schedule is obeyed action by action."""

    is_tree: ClassVar[bool] = False

    @property
    def needs_length(self) -> bool:
        """Its schedule comes out of a dynamic programme over all steps."""
        return True

    def _resolve(self, n: int | None, sizes: Bytes | None) -> Resolved:
        """Refused: this plan is no (alpha, d, t); `schedule` and `predict` work."""
        if n is None and self.needs_length:
            since = "schedule comes out of a dynamic programme"
            refuse_unknown_length(self._shown, since)
        raise PlanError(
            f"`{self._shown}` cannot be expressed as a stage length, a number of "
            "snapshots and a number of sweeps, which this engine needs. It is for "
            "`retape.adjoint` and `retape.driver.run`, which obey it action by action. "
            "Pass another plan here, such as `fixed_space(snapshots=20)`."
        )

    @property
    def _shown(self) -> str:
        """The plan in messages."""
        return self.name


def stage_within(n: int, stage: int | None, roomy: int) -> int:
    """The stage length asked for, or else `roomy`; no longer than the run."""
    return max(1, min(roomy if stage is None else stage, n))

"""Plans that are (alpha, d, t): resolved, scheduled and predicted in one place.

Such a plan picks alpha and d; t and the schedule follow from the number of steps, and
an engine that cannot obey single actions makes the same schedule from the three numbers
(`retape.jax` in a compiled loop, `retape.torch` while a program runs).
"""

from dataclasses import dataclass
from typing import ClassVar

from retape._errors import PlanError
from retape.plan._base import Plan, both_bytes
from retape.plan._prediction import AnySchedule, Bytes, Prediction, Resolved
from retape.schedule import Schedule
from retape.schedule._whole import whole


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TreePlan(Plan):
    """A plan that is (alpha, d, t), and the way to cut intervals."""

    is_tree: ClassVar[bool] = True

    def resolve(
        self,
        n: int | None,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Resolved:
        n = None if n is None else whole("n", n)
        if n is not None and n < 0:
            raise PlanError(
                f"`n={n}` cannot be: the number of steps is at least 0. Pass the "
                "length of the run."
            )
        if n == 0:
            return Resolved(1, 0, 0)
        alpha, d = self._pick(n, both_bytes(capsule_bytes, tape_bytes))
        if n is None:
            return Resolved(alpha, d, None)
        alpha = min(alpha, n)
        stages = -(-n // alpha)
        d = min(d, stages - 1)
        return Resolved(alpha, d, Schedule(n, d, alpha, self.split).sweeps)

    def schedule(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> AnySchedule:
        alpha, d, _ = self.resolve(n, capsule_bytes, tape_bytes)
        return Schedule(n, d, alpha, self.split)

    def predict(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Prediction:
        n = whole("n", n)
        alpha, d, t = self.resolve(n, capsule_bytes, tape_bytes)
        counts = Schedule(n, d, alpha, self.split).counts()
        both = both_bytes(capsule_bytes, tape_bytes)
        if both is None or self.offload is None:
            peak = counts.peak_bytes(*both) if both else None
            return Prediction(alpha, d, t or 0, counts, peak)
        w, r = both
        host = counts.peak_snapshots * w
        peak = counts.peak_bytes(0, r)
        return Prediction(alpha, d, t or 0, counts, peak, host_bytes=host)

    def _pick(self, n: int | None, both: Bytes | None) -> tuple[int, int]:
        """alpha and d for n >= 1 steps; `resolve` trims both to what n can use."""
        raise NotImplementedError(type(self).__name__)

"""A program in one budget: a run of it that was measured, and the best plan known.

Plans are left where a program does something else than was measured or holds more. That
may show in the backward, when runs of other programs, or of the same, have begun since.
So each run that follows a plan tells its program itself that it left it, and what it
tells is looked at before the next run.
"""

from abc import ABC, abstractmethod

from retape.engines.eager.analysis._measured import Measured
from retape.engines.eager.analysis._units import Descent
from retape.engines.eager.plan._dynamic_programme import LARGEST
from retape.engines.eager.plan._fit import Fit
from retape.engines.eager.plan._planned_forward import UnitSchedule


class Program(ABC):
    """A measured program and its schedule, for one budget.

    Attributes:
        memory: The budget, in bytes.
        measured: A run of it; `None` if there is none yet.
        descents: The plan, if there is one that is worth while.
        fit: What plans have to leave.
    """

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.measured: Measured | None = None
        self.descents: tuple[Descent, ...] = ()
        self.fit = Fit()
        self._left: list[UnitSchedule] = []

    @abstractmethod
    def fail(self, plan: UnitSchedule) -> None:
        """A run has left the plan that is followed now."""

    def find_plan(self, largest: int = LARGEST, below: float = float("inf")) -> None:
        """Find the best descents in what there is room for, if they cost less."""
        assert self.measured is not None
        best = self.fit.best(self.measured, self.memory, largest)
        self.descents = tuple(best.descents()) if best.cost < below else ()

    def plan(self) -> UnitSchedule | None:
        """The plan, for one run."""
        if self.measured is None or not self.descents:
            return None
        return self.fit.plan(self.descents, self.measured)

    def watch(self, plan: UnitSchedule) -> None:
        """Hear of it if a run leaves its plan, or has left it."""
        plan.on_leaving = self._left.append
        if plan.broken:
            self._left.append(plan)

    def settle(self) -> None:
        """Learn from the plans that were left since the last time."""
        while self._left:
            plan = self._left.pop(0)
            # Several runs may have followed the same plan at once: one lesson will do.
            if self.descents and plan.descents is self.descents:
                self.fail(plan)

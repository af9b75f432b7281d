"""Counts of a recorded run."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from retape.engines.eager._record_bytes import RecordSize, deep_bytes
from retape.engines.eager.trace._schedule import Region, RunPlan, Schedule

_NO_TABLE = (
    "There is no table of operators: the block has not ended yet, or it was run with "
    "`mode='loop'`, which notes calls."
)


@dataclass(slots=True)
class Tally:
    """Counts of one run, while it goes on. `again` counts how often each step was.

    `record` is the size of its record, `plan` the plan that it began with, `schedule`
    tells what is kept and what is run again, `regions` has those with names, `sharding`
    is what FSDP2 has gathered beside the budget.
    """

    steps: int = 0
    saved: int = 0
    recomputed: int = 0
    stages: int = 0
    planted: int = 0
    snapshots: int = 0
    thinned: int = 0
    peak: int = 0
    sharding: int = 0
    record: RecordSize | None = None
    plan: Any = None
    schedule: Callable[[], Schedule] | None = None
    regions: list[Region] = field(default_factory=list[Region])
    again: Counter[int] = field(default_factory=Counter[int])

    def cost(self, costs: Sequence[int]) -> int:
        """The cost of all that was run again, from those of the steps."""
        return sum(count * costs[index] for index, count in self.again.items())

    def _bookkeeping(self) -> int | None:
        if self.record is None:
            return None
        measured = None if self.plan is None else self.plan.measured
        return self.record.bare + self.record.notes + deep_bytes(measured)

    def _plan(self) -> RunPlan:
        left = self.plan is not None and self.plan.broken
        state = "none" if self.plan is None else "left" if left else "followed"
        if self.schedule is None:
            return RunPlan(state, (), _NO_TABLE)
        schedule = self.schedule()
        return RunPlan(state, schedule.parts(self.again, self.regions), schedule.why)

    def report(self) -> "EagerReport":
        """The counts so far, frozen."""
        return EagerReport(
            steps=self.steps,
            saved=self.saved,
            recomputed=self.recomputed,
            stages=self.stages,
            planted=self.planted,
            snapshots=self.snapshots,
            thinned=self.thinned,
            peak_bytes=self.peak,
            bookkeeping_bytes=self._bookkeeping(),
            plan=self._plan(),
            sharding_bytes=self.sharding,
        )


@dataclass(frozen=True, slots=True)
class EagerReport:
    """Counts of a run under `recompute` so far.

    Attributes:
        steps: Operators recorded.
        saved: Tensors that autograd saved for its backward.
        recomputed: Operators run again.
        stages: Times that a part of the run was recomputed for its backward.
        planted: Snapshots stored during the backward.
        snapshots: Snapshots placed during the forward.
        thinned: Of those, how many were given up again.
        peak_bytes: The most bytes alive at once in storages that the run made, those
            recomputed included; gradients that stay are not among them.
            Where nothing had to be let go, a budget in which nothing has to be.
        bookkeeping_bytes: About the bytes that the record took when the forward was
            over, and the plan that was followed: objects of the process's own heap,
            which a budget of more than a megabyte covers where tensors are on the host.
            `None` before that, and with `mode="loop"`.
        plan: What is kept and what is run again, and why; `print(report.plan)` is a
            table. Its `state` says whether the run went by a plan.
        sharding_bytes: Bytes of the whole parameters that modules of FSDP2 gathered in
            the forward, all together, if they get a gradient. A budget has no room for
            them, nor for their gradients and buffers: FSDP2 holds those of a few
            modules at once.
    """

    steps: int
    saved: int
    recomputed: int
    stages: int
    planted: int
    snapshots: int
    thinned: int
    peak_bytes: int
    bookkeeping_bytes: int | None = field(default=None, compare=False)
    plan: RunPlan = field(default_factory=lambda: RunPlan("none"))
    sharding_bytes: int = 0

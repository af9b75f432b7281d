"""The plan over memory and disk."""

from dataclasses import dataclass, field, replace
from typing import ClassVar, NoReturn

from retape._bytes import format_bytes, parse_bytes
from retape._errors import BudgetError, PlanError
from retape.plan._base import MANY_STEPS, Bytes, Prediction, both_bytes
from retape.plan._options import check_stage, refuse_others
from retape.plan._scheduled import ScheduledPlan, stage_within
from retape.plan._stage_length import stage_for_snapshots
from retape.schedule import OnlineTiers, TierCosts, TwoTier
from retape.schedule._whole import whole

_MOST_STEPS = 10**300
"""Costs are numbers of floating point."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Tiers(ScheduledPlan):
    """`retape.tiers`."""

    NAME: ClassVar[str] = "tiers"
    needs_length: ClassVar[bool] = False

    memory: int | str
    disk: int | str
    costs: TierCosts = field(default_factory=TierCosts)

    def schedule(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> TwoTier:
        """The cheapest schedule over both tiers."""
        if whole("n", n) > _MOST_STEPS:
            raise PlanError(
                "`n` has more than 300 digits, and costs are numbers of floating "
                "point, which end at 10^308. Pass fewer steps."
            )
        return TwoTier(n, *self._slots(n, capsule_bytes, tape_bytes))

    def online(
        self, capsule_bytes: int | None = None, tape_bytes: int | None = None
    ) -> OnlineTiers:
        """The same while the end of a run is not known."""
        return OnlineTiers(*self._slots(MANY_STEPS, capsule_bytes, tape_bytes))

    def _slots(
        self, n: int, capsule_bytes: int | None, tape_bytes: int | None
    ) -> tuple[int, int, TierCosts, int]:
        """The slots on both tiers, the costs of a stage and its length."""
        both = both_bytes(capsule_bytes, tape_bytes)
        alpha, memory = self._in_memory(n, both)
        disk = self._on_disk(both)
        if memory + disk == 0 and n > alpha:
            raise BudgetError(
                f"`memory={self.memory!r}` and `disk={self.disk!r}` hold no snapshot, "
                f"which takes {capsule_bytes} bytes "
                f"({format_bytes(capsule_bytes or 0)}). The least possible is that "
                "much on one of them."
            )
        per_step = self.costs
        per_stage = replace(
            per_step,
            forward=per_step.forward * alpha,
            tape=per_step.tape * alpha,
            backward=per_step.backward * alpha,
        )
        return memory, disk, per_stage, alpha

    def predict(
        self,
        n: int,
        capsule_bytes: int | None = None,
        tape_bytes: int | None = None,
    ) -> Prediction:
        """Predict the counts and the cost of n steps, without running them."""
        schedule = self.schedule(n, capsule_bytes, tape_bytes)
        counts, sweeps = schedule.counts_and_sweeps()
        both = both_bytes(capsule_bytes, tape_bytes)
        return Prediction(
            schedule.stage,
            schedule.memory + schedule.disk,
            sweeps,
            counts,
            counts.peak_bytes(*both) if both else None,
            disk_bytes=counts.peak_disk * both[0] if both else None,
            cost=schedule.cost(),
            bound=schedule.bound(),
        )

    def _in_memory(self, n: int, both: Bytes | None) -> tuple[int, int]:
        """The stage length, and the slots in memory.

        Bytes are the peak: snapshots and the tape of a stage share them. The tape gets
        two thirds, as where slots are counted it gets twice the bytes of the snapshots.
        """
        if isinstance(self.memory, int):
            held = max(1, self.memory)
            roomy = stage_for_snapshots(held, *both) if both else 1
            return stage_within(n, self.stage, roomy), self.memory
        w, r = both or _no_bytes("memory", self.memory)
        most = parse_bytes(self.memory, "memory")
        alpha = stage_within(n, self.stage, 2 * most // (3 * r) if r else n)
        if alpha * r > most:
            raise BudgetError(
                f"`memory={self.memory!r}` does not hold the tape of a stage, which "
                f"takes {alpha * r} bytes ({format_bytes(alpha * r)}) for "
                f"{alpha} steps. Pass at least that much.",
                alpha * r,
            )
        return alpha, (most - alpha * r) // max(1, w)

    def _on_disk(self, both: Bytes | None) -> int:
        """The slots on disk, where nothing but snapshots is kept."""
        if isinstance(self.disk, int):
            return self.disk
        w, _ = both or _no_bytes("disk", self.disk)
        return parse_bytes(self.disk, "disk") // max(1, w)


def _no_bytes(name: str, value: str) -> NoReturn:
    raise PlanError(
        f"`{name}={value!r}` counts bytes, and `capsule_bytes` and `tape_bytes` were "
        f"not given. Pass them, or a number of snapshots, such as `{name}=20`."
    )


def tiers(
    *,
    memory: int | str,
    disk: int | str,
    costs: TierCosts | None = None,
    stage: int | None = None,
    **others: object,
) -> Tiers:
    """A plan over memory and disk that weighs advances against writes and reads.

    Use it with a `TieredStore`, whose memory part has room for `memory`: a store of
    one kind keeps the snapshots of both tiers.

    Args:
        memory: Snapshots in memory, or bytes as a text such as "50 MB", which the
            snapshots there share with the tape of a stage.
        disk: Snapshots on disk, or bytes as a text.
        costs: Of a step (`forward`, `tape`, `backward`) and of a snapshot's writes and
            reads, in any one unit of time. By default a disk's write and read cost as
            much as five steps.
        stage: alpha. By default as in `fixed_space`, for the snapshots in memory.
        **others: None; an option of another plan is refused by name.

    Raises:
        PlanError: If an option cannot be, or is another plan's.
        BudgetError: When the plan is used, if neither part holds a snapshot, or the
            memory not the tape of a stage.

    Examples:
        >>> import retape
        >>> prediction = retape.tiers(memory=4, disk=10).predict(100)
        >>> prediction.advances, prediction.counts.peak_disk, prediction.cost
        (249, 5, 499.0)
    """
    refuse_others("tiers", others)
    for name, value in (("memory", memory), ("disk", disk)):
        if isinstance(value, str):
            parse_bytes(value, name)
        elif not hasattr(value, "__index__") or isinstance(value, bool) or value < 0:
            raise PlanError(
                f"`{name}={value!r}` cannot be: pass a number of snapshots, none or "
                'more, or bytes as a text such as "50 MB".'
            )
    if memory == disk == 0:
        raise PlanError(
            "`memory=0` and `disk=0` cannot be: the start state needs a slot on one of "
            "them."
        )
    if costs is not None and not isinstance(costs, TierCosts):
        raise PlanError(f"`costs={costs!r}` cannot be: pass `retape.TierCosts(...)`.")
    return Tiers(
        memory=memory if isinstance(memory, str) else whole("memory", memory),
        disk=disk if isinstance(disk, str) else whole("disk", disk),
        costs=costs or TierCosts(),
        stage=check_stage(stage),
    )

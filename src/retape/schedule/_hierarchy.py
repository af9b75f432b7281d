"""Any number of tiers: a device, the host, a disk, a remote store."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from retape._arguments import settle
from retape._errors import PlanError
from retape.schedule._cost import Counts, TierCounts, binomial_counts
from retape.schedule._offline import Offline
from retape.schedule._policy_stream import Policy
from retape.schedule._split import BinomialPolicy
from retape.schedule._tables._hierarchy_rules import Task, decided, least_cost
from retape.schedule._tables._space import Rooms
from retape.schedule._tier import StepCosts, Tier


@dataclass(frozen=True, slots=True)
class Hierarchy(Offline):
    """The cheapest persistent schedule over any number of tiers.

    Up to a size (`exact` tells) it is the optimum by dynamic programming over all
    combinations of free slots. Beyond, a tier is used only inside the intervals that
    the tiers after it cut, which takes a table of the sum of the slots; and where that
    is too large, the longest intervals are cut at binomial splits. `bound` says how far
    from the optimum that can be.

    Args:
        length: Steps to reverse.
        tiers: The tiers, the nearest first; their snapshots are numbers.
        costs: Of `forward`, `tape` and `backward`, per stage. The tiers have their own.
        stage: Steps taped at a time.

    Raises:
        PlanError: If there is no room for the start state, or two tiers have one name;
            when used, if a run costs more than numbers of floating point hold.

    Examples:
        >>> from retape import Tier
        >>> from retape.schedule import Hierarchy, replay
        >>> tiers = Tier("device", 2), Tier("host", 3, 1, 1), Tier("disk", 9, 6, 6)
        >>> schedule = Hierarchy(60, tiers)
        >>> replay(schedule, 60, capacity={t.name: t.snapshots for t in tiers}).advances
        145
        >>> schedule.cost(), schedule.exact
        (298.0, True)
        >>> schedule.counts().tiers["disk"]
        TierCounts(stores=1, restores=1, peak=1)
    """

    length: int
    tiers: tuple[Tier, ...]
    costs: StepCosts = StepCosts()
    stage: int = 1

    def __post_init__(self) -> None:
        settle(self, length=0, stage=1)
        object.__setattr__(self, "tiers", tuple(self.tiers))
        check_tiers(self.tiers)
        if not any(self._slots) and self.length > self.stage:
            raise PlanError(
                f"`tiers={self.tiers!r}` is not valid: the start state needs a slot on "
                "one of them. Pass at least one snapshot on one."
            )

    @property
    def tier_names(self) -> tuple[str, ...]:
        """The tiers, the nearest first: what a store of several parts is told."""
        return tuple(tier.name for tier in self.tiers)

    @property
    def exact(self) -> bool:
        """Tell whether this is the optimum, or a near-optimum within `bound`."""
        return self.stages <= 1 or decided(self._task).exact

    def cost(self) -> float:
        """The cost of everything, taping and sweeping back included."""
        rest = 0.0 if self.stages <= 1 else decided(self._task).cost
        return self._taping + rest

    def bound(self) -> float:
        """At most this times the optimum: 1 if exact.

        No schedule advances less than the binomial one with all slots together, reads
        fewer than one snapshot for each stage but the last, or is cheaper than the best
        one for tiers that never fill up.
        """
        if self.exact:
            return 1.0
        least = self._taping + least_cost(self._task)
        if least > 0:
            return max(1.0, self.cost() / least)
        return inf if self.cost() else 1.0

    def _decides(self) -> tuple[Policy[Any], Any]:
        if self.stages <= 1:
            return BinomialPolicy(), 0  # It is asked nothing.
        found = decided(self._task)
        return found.policy, found.room

    def counts(self) -> Counts:
        """The counts of a replay, by recurrence or in closed form."""
        each = {tier.name: TierCounts() for tier in self.tiers}
        if self.stages <= 1:
            counts = binomial_counts(self.length, self.stage, 0)
            return replace(counts, tiers=each)
        counts = decided(self._task).total.counts
        return replace(
            counts,
            advances=counts.advances * self.stage,
            taped=self.length,
            longest_stage=min(self.stage, self.length),
            tiers=each | dict(counts.tiers),
        )

    @property
    def sweeps(self) -> int:
        return 0 if self.stages <= 1 else decided(self._task).total.sweeps

    @property
    def slots(self) -> int:
        """The snapshots of all tiers."""
        return sum(self._slots)

    def _held_bytes(self, counts: Counts, w: int, r: int) -> int:
        """Of the nearest tier, which is the memory."""
        return counts.tiers[self.tiers[0].name].peak * w

    @property
    def _slots(self) -> list[int]:
        return [int(tier.snapshots) for tier in self.tiers]

    @property
    def _task(self) -> Task:
        slots, tiers = self._useful()
        return Task(self.length, self.stage, slots, tiers, self.costs, self.tiers)

    @property
    def _taping(self) -> float:
        return self.length / self.stage * (self.costs.tape + self.costs.backward)

    def _useful(self) -> tuple[Rooms, tuple[Tier, ...]]:
        """The tiers with a slot, those that cost most last, and their slots.

        More slots than stages, less one, are never taken.
        """
        kept = [tier for tier in self.tiers if tier.snapshots]
        kept.sort(key=lambda tier: (tier.read + tier.write, tier.read))
        most = max(1, self.stages - 1)
        return (
            tuple(min(int(tier.snapshots), most) for tier in kept),
            tuple(replace(tier, snapshots=0) for tier in kept),
        )


def check_tiers(tiers: Sequence[object]) -> None:
    """Refuse what are no tiers, and two of one name.

    Raises:
        PlanError: If so.
    """
    names: list[str] = []
    for tier in tiers:
        if not isinstance(tier, Tier):
            raise PlanError(
                f"`{tier!r}` is not a tier. Pass `retape.Tier(name, snapshots)`."
            )
        names.append(tier.name)
    if not names or len(names) != len(set(names)):
        raise PlanError(
            f"tiers named {names} are not valid: pass at least one, each with a name "
            "of its own, since snapshots are found by it."
        )

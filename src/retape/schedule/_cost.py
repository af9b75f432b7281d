"""Counts of a schedule, without replaying it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from retape._errors import PlanError
from retape.schedule._binomial import least_stores, optimal_advances
from retape.schedule._split import Rule


class TierCounts(NamedTuple):
    """Counts of one tier.

    Attributes:
        stores: Snapshots written to it; tapes, too.
        restores: Snapshots read from it; tapes are not counted.
        peak: The most slots in use at once.
    """

    stores: int = 0
    restores: int = 0
    peak: int = 0


def _no_tiers() -> dict[str, TierCounts]:
    return {}


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of a schedule's actions.

    Attributes:
        advances: Steps run without a tape.
        taped: Steps taped and swept back.
        stores: Snapshots written.
        restores: Snapshots read.
        reverses: Stages.
        peak_snapshots: The most slots in use at once, on all tiers together.
        longest_stage: The most steps on the tape at once.
        kept_tapes: Tapes written to slots, in mixed schedules.
        peak_disk: The most slots in use at once on the tier "disk".
        peak_memory: The same of all other tiers; by default `peak_snapshots`.
        tiers: The counts of each tier by its name, from a replay and from schedules
            over tiers; empty for others. Two counts are equal whatever this is.
    """

    advances: int
    taped: int
    stores: int
    restores: int
    reverses: int
    peak_snapshots: int
    longest_stage: int
    kept_tapes: int = 0
    peak_disk: int = 0
    peak_memory: int = -1
    tiers: Mapping[str, TierCounts] = field(
        default_factory=_no_tiers, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        if self.peak_memory < 0:
            object.__setattr__(self, "peak_memory", self.peak_snapshots)

    def peak_bytes(self, capsule_bytes: int, tape_bytes: int) -> int:
        """Memory for snapshots at their most and the longest tape.

        peak_memory*w + longest_stage*r: what is on disk is not counted, and a tape in a
        slot as if it were a snapshot.
        """
        return self.peak_memory * capsule_bytes + self.longest_stage * tape_bytes


def binomial_counts(length: int, stage: int, snapshots: int) -> Counts:
    """The closed form for the binomial split; constant in memory, O(t) in time.

    Args:
        length: The number of steps.
        stage: Steps taped at a time.
        snapshots: The most snapshots, the start state's included.

    Raises:
        PlanError: If a count is no integer, or cannot be.

    Examples:
        >>> counts = binomial_counts(10**9, 1000, 20)
        >>> counts.advances, counts.stores, counts.peak_snapshots
        (6815960000, 657800, 20)
    """
    stages = -(-length // stage)
    return Counts(
        advances=stage * optimal_advances(stages, snapshots),
        taped=length,
        stores=least_stores(stages, snapshots),
        restores=max(0, stages - 1),
        reverses=max(1, stages),
        peak_snapshots=max(0, min(snapshots, stages - 1)),
        longest_stage=min(stage, length),
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """Counts of an interval whose start is not stored yet."""

    advances: int
    stores: int
    peak: int
    leaves: int
    longest: int


_Key = tuple[int, int, int]

MOST_INTERVALS = 200_000
"""The most different intervals whose counts are looked for: a second or two."""


def rule_counts(
    length: int,
    stage: int,
    snapshots: int,
    sweeps: int,
    rule: Rule,
    *,
    to_single_stages: bool = True,
) -> Counts:
    """The counts of any rule, by the recurrence of the tree over distinct intervals.

    Few intervals of a bisection or a treeverse differ, so this is fast where a replay
    of 10^12 steps would not be. An explicit stack stands for the recursion.

    Args:
        length: Steps.
        stage: Steps in a stage.
        snapshots: Slots of the root.
        sweeps: Sweeps of the root.
        rule: Where to split.
        to_single_stages: The rule stops at single stages only, so that an interval
            with one slot is a comb, which is counted in closed form.
    """
    root = (-(-length // stage), snapshots, sweeps)
    known: dict[_Key, _Part] = {}
    stack = [root]
    while stack:
        if len(known) + len(stack) > MOST_INTERVALS:
            raise too_many_intervals(length, MOST_INTERVALS)
        key = stack[-1]
        needed: list[_Key] = []
        if key not in known and not (to_single_stages and key[1] == 1):
            needed = _children(key, rule)
        missing = [child for child in needed if child not in known]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        if key not in known:
            known[key] = _combine(key, needed, known, to_single_stages)
    part = known[root]
    return Counts(
        advances=part.advances * stage,
        taped=length,
        stores=part.stores,
        restores=part.leaves - 1,
        reverses=part.leaves,
        peak_snapshots=part.peak,
        longest_stage=min(part.longest * stage, length),
    )


def too_many_intervals(length: int, most: int) -> PlanError:
    """The refusal to count a schedule for longer than some seconds."""
    return PlanError(
        f"a schedule of this kind of {length} steps has more than {most} "
        "different intervals, which would be counted one by one. Pass longer stages or "
        "more snapshots, or use the binomial split with states only, whose counts are "
        "in closed form."
    )


def _children(key: _Key, rule: Rule) -> list[_Key]:
    """The right and the left part of an interval; none for a leaf."""
    length, d, t = key
    split = rule(length, d, t)
    return [(length - split, d - 1, t), (split, d, t - 1)] if split else []


def _combine(
    key: _Key, needed: list[_Key], known: dict[_Key, _Part], comb: bool
) -> _Part:
    length = key[0]
    if not needed:
        if comb and length > 1:
            return _Part(length * (length - 1) // 2, 1, 1, length, 1)
        return _Part(0, 0, 0, 1, length)
    right, left = (known[child] for child in needed)
    return _Part(
        advances=needed[1][0] + right.advances + left.advances,
        # The left part begins where this one does: its start is stored only once.
        stores=1 + right.stores + max(0, left.stores - 1),
        peak=max(1 + right.peak, left.peak),
        leaves=right.leaves + left.leaves,
        longest=max(right.longest, left.longest),
    )

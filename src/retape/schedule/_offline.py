"""Schedules of runs whose length is known, and the divide-and-conquer one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from retape._arguments import settle, word_of
from retape.schedule._action import Action
from retape.schedule._binomial import least_sweeps
from retape.schedule._cost import Counts, binomial_counts
from retape.schedule._policy_counts import policy_counts
from retape.schedule._policy_stream import Policy, Stream
from retape.schedule._split import Split, bisection_sweeps, split_policy


class Offline:
    """A schedule of a run whose length is known.

    Attributes:
        length: Steps to reverse.
        stage: Steps taped at a time.
    """

    __slots__ = ()

    length: int
    stage: int

    def __iter__(self) -> Iterator[Action]:
        policy, room = self._decides()
        return iter(Stream(policy, self.length, self.stage, room))

    def _decides(self) -> tuple[Policy[Any], Any]:
        """The policy that makes its actions, and what is free at the beginning."""
        raise NotImplementedError

    def counts(self) -> Counts:
        """The counts of a replay."""
        raise NotImplementedError

    @property
    def stages(self) -> int:
        """ceil(length / stage)."""
        return -(-self.length // self.stage)

    @property
    def slots(self) -> int:
        """The most snapshots that it may hold."""
        raise NotImplementedError

    @property
    def sweeps(self) -> int:
        """The most times that a step is advanced."""
        raise NotImplementedError

    @property
    def tier_names(self) -> tuple[str, ...]:
        """The tiers, the nearest first, if it tells several apart."""
        return ()

    def cost(self) -> float | None:
        """The cost of everything, if it is told what things cost."""
        return None

    def bound(self) -> float:
        """At most this times the least of its kind."""
        return 1.0

    def peak_bytes(self, sizes: tuple[int, int] | None = None) -> int | None:
        """Memory for the snapshots at their most and the longest tape.

        Args:
            sizes: The bytes of a snapshot and of the tape of a step.
        """
        if sizes is None:
            return None
        counts, (w, r) = self.counts(), sizes
        return self._held_bytes(counts, w, r) + counts.longest_stage * r

    def _held_bytes(self, counts: Counts, w: int, r: int) -> int:
        """Memory for what slots hold at their most."""
        del r
        return counts.peak_snapshots * w


@dataclass(frozen=True, slots=True)
class Schedule(Offline):
    """The divide-and-conquer schedule of `length` steps in stages.

    Iterating it yields actions, each time anew, in O(snapshots) memory; the object
    itself is four small values that can be compared, printed and pickled.

    Args:
        length: Steps to reverse.
        snapshots: Slots, the start state's included.
        stage: Steps taped at a time.
        split: Where intervals are cut.

    Examples:
        >>> from retape.schedule import Schedule
        >>> for action in Schedule(2, snapshots=1):
        ...     print(action)
        Store(step=0, slot=0, tier='memory')
        Advance(start=0, stop=1)
        Reverse(start=1, stop=2)
        Restore(step=0, slot=0, tier='memory')
        Drop(step=0, slot=0, tier='memory')
        Reverse(start=0, stop=1)
    """

    length: int
    snapshots: int
    stage: int = 1
    split: Split = "binomial"

    def __post_init__(self) -> None:
        settle(self, length=0, stage=1)
        word_of("split", self.split, get_args(Split))
        # A run of a single stage needs no slot.
        settle(self, snapshots=1 if self.length > self.stage else 0)

    @property
    def slots(self) -> int:
        return self.snapshots

    @property
    def sweeps(self) -> int:
        """t: the most times that a step is advanced.

        The least t with beta(snapshots, t) >= stages, except that a bisection has its
        own.
        """
        if self.stages <= 1:
            return 0
        if self.split == "bisection":
            return bisection_sweeps(self.stages, self.snapshots)
        return least_sweeps(self.stages, self.snapshots)

    def _decides(self) -> tuple[Policy[Any], Any]:
        return split_policy(self.split, self.stages, self.snapshots)

    def counts(self) -> Counts:
        """The counts of a replay, in closed form or by recurrence."""
        if self.split == "binomial":
            return binomial_counts(self.length, self.stage, self.snapshots)
        policy, room = self._decides()
        return policy_counts(policy, self.length, self.stage, room).counts

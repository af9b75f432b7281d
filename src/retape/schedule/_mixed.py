"""Mixed schedules: a slot holds a state, or the tape of one stage.

A state can be run from again and again; a tape can be swept back once, and then nothing
is run again for its stage. Where a tape is not much larger than a state it is better
kept than made twice.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

from retape._arguments import settle
from retape._bytes import format_bytes
from retape._errors import BudgetError
from retape.schedule._binomial import optimal_advances
from retape.schedule._cost import Counts, TierCounts
from retape.schedule._offline import Offline
from retape.schedule._policy_counts import Totals, policy_counts
from retape.schedule._tables._table_policy import TablePolicy, mixed_policy


@dataclass(frozen=True, slots=True)
class Mixed(Offline):
    """The schedule with the fewest advances whose slots hold states or tapes.

    Up to a size (`exact` tells) it is the optimum by dynamic programming. Beyond, long
    intervals are cut at binomial splits and the programme decides about the shorter
    ones; `bound` says how far from the optimum that can be. Where there is room for
    every tape nothing is run twice, whatever the size.

    The tape of the stage that is being reversed at once is not in a slot: memory is the
    budget, and one more tape.

    Args:
        length: Steps to reverse.
        budget: What all slots together may take, in the unit of the next two.
        state: What a state takes.
        tape: What the tape of a stage takes.
        stage: Steps taped at a time.

    Examples:
        >>> from retape.schedule import Mixed, Schedule
        >>> for action in Mixed(3, budget=1):
        ...     print(action)
        Store(step=0, slot=0, tier='memory')
        Advance(start=0, stop=2)
        Reverse(start=2, stop=3)
        Restore(step=0, slot=0, tier='memory')
        Drop(step=0, slot=0, tier='memory')
        Tape(start=0, stop=1, slot=0, tier='memory')
        Reverse(start=1, stop=2)
        Sweep(start=0, stop=1, slot=0, tier='memory')
        Drop(step=0, slot=0, tier='memory')
        >>> Mixed(100, budget=5).counts().advances, Schedule(100, 5).counts().advances
        (252, 316)
    """

    length: int
    budget: int
    state: int = 1
    tape: int = 1
    stage: int = 1

    def __post_init__(self) -> None:
        settle(self, length=0, budget=0, state=1, tape=1, stage=1)
        if self.budget < self.least_budget():
            least = self.least_budget()
            raise BudgetError(
                f"`budget={self.budget}` cannot be kept: a state takes {self.state}, "
                f"the tape of a stage {self.tape}. The least possible is {least} "
                f"({format_bytes(least)}, if these are bytes).",
                least,
            )

    def least_budget(self) -> int:
        """The least possible: the start state, or every tape but the last."""
        return min(self.state, (self.stages - 1) * self.tape) if self.stages > 1 else 0

    @property
    def slots(self) -> int:
        """The most states, each in a slot of its own."""
        return self.budget // self.state

    @property
    def exact(self) -> bool:
        """Tell whether this is the optimum, or a near-optimum within `bound`."""
        return self._all_fit() or self.stages <= self._policy().reach

    def bound(self) -> float:
        """The steps run, taped ones included, are at most this times the fewest.

        Whoever keeps a state in the place of each tape advances one stage more for it:
        so there are at least A - (N - 1) stages to advance, where A is the optimum with
        states only, in as many slots as the smaller of the two fills.
        """
        if self.exact:
            return 1.0
        slots = self.budget // min(self.state, self.tape)
        fewest = optimal_advances(self.stages, slots) - (self.stages - 1)
        run = self.counts().advances // self.stage + self.stages
        return run / (max(0, fewest) + self.stages)

    def _decides(self) -> tuple[TablePolicy[int], int]:
        return self._policy(), self._room()

    def counts(self) -> Counts:
        """The counts of a replay, by recurrence."""
        return replace(_totals(self, 1, 1).counts)

    @property
    def sweeps(self) -> int:
        return _totals(self, 1, 1).sweeps

    def heaviest(self, state: int, tape: int) -> int:
        """The most that all slots hold at once, for these sizes of a state and a tape.

        Examples:
            >>> Mixed(50, budget=3).heaviest(8, 20)
            60
        """
        return _totals(self, state, tape).weight

    def _held_bytes(self, counts: Counts, w: int, r: int) -> int:
        return self.heaviest(w, self.stage * r)

    def totals(self, state: int, tape: int) -> Totals:
        """What it comes to, where a state and a tape weigh so much."""
        if self._all_fit():
            return self._all_taped(tape)
        root = self.length, self.stage, self._room()
        return policy_counts(self._policy(), *root, state=state, tape=tape)

    def _all_taped(self, tape: int) -> Totals:
        """Every stage but the last is kept, and nothing is run twice."""
        kept = max(0, self.stages - 1)
        counts = Counts(
            advances=0,
            taped=self.length,
            stores=0,
            restores=0,
            reverses=max(1, self.stages),
            peak_snapshots=kept,
            longest_stage=min(self.stage, self.length),
            kept_tapes=kept,
            tiers={"memory": TierCounts(kept, 0, kept)},
        )
        return Totals(counts, 0, kept * tape)

    def _room(self) -> int:
        # More than one thing for each stage but the last is never kept.
        most = max(0, self.stages - 1) * max(self.state, self.tape)
        return min(self.budget, most) // gcd(self.state, self.tape)

    def _all_fit(self) -> bool:
        return self.budget >= (self.stages - 1) * self.tape

    def _policy(self) -> TablePolicy[int]:
        unit = gcd(self.state, self.tape)
        sizes = self.state // unit, self.tape // unit
        if self._all_fit():
            return mixed_policy(1, 0, *sizes)
        return mixed_policy(self.stages, self._room(), *sizes)


@lru_cache(maxsize=8)
def _totals(schedule: Mixed, state: int, tape: int) -> Totals:
    """`Mixed.totals`, kept: a prediction asks for it several times."""
    return schedule.totals(state, tape)

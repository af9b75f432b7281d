"""Equal segments whose starts lie on one tier, each reversed binomially on another.

It is told in closed form, so for a run of any length: two numbers and two tiers.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from retape.schedule._binomial import least_sweeps
from retape.schedule._cost import Counts, TierCounts, binomial_counts
from retape.schedule._policy_counts import Totals
from retape.schedule._policy_stream import Held, Released
from retape.schedule._split import binomial_split
from retape.schedule._tier import Tier


@dataclass(frozen=True, slots=True)
class SegmentPolicy:
    """Decides about intervals by their length alone.

    Attributes:
        near: Where the snapshots inside of a segment are, and how many.
        far: Where the starts of the segments are.
        size: The stages of a segment; the last one may be shorter.
    """

    near: Tier
    far: Tier
    size: int

    def keep(self, lo: int, hi: int, room: int) -> Held[int]:
        """The start of a segment is far, all others are near."""
        if hi - lo > self.size:
            return Held(self.far.name, False, room, self.size)
        return self._near(hi - lo, room - 1)

    def after_read(
        self, lo: int, hi: int, held: Held[int]
    ) -> Held[int] | Released[int]:
        """The start of a segment becomes the first of those that are near."""
        is_far = held.tier == self.far.name and self.far.name != self.near.name
        return Released(held.room) if is_far else self._near(hi - lo, held.room)

    def _near(self, stages: int, room: int) -> Held[int]:
        split = binomial_split(stages, room + 1)
        return Held(self.near.name, False, room, split)

    def is_alone(self, held: Held[int]) -> bool:
        """Not told: the counts are in closed form."""
        return False

    def totals(self, stages: int, slots: int) -> Totals:
        """The counts of a run with so many slots near."""
        others, last = divmod(stages - 1, self.size)
        parts = [(1, last + 1), (others, self.size)] if others else [(1, last + 1)]
        each = [(times, binomial_counts(size, 1, slots)) for times, size in parts]
        inside = TierCounts(
            sum(times * one.stores for times, one in each),
            sum(times * one.restores for times, one in each),
            max(one.peak_snapshots for _, one in each),
        )
        starts = TierCounts(others, others, others)
        counts = Counts(
            advances=others * self.size + sum(t * one.advances for t, one in each),
            taped=stages,
            stores=others + inside.stores,
            restores=others + inside.restores,
            reverses=stages,
            peak_snapshots=max(
                others + each[0][1].peak_snapshots,
                others - 1 + each[-1][1].peak_snapshots,
            ),
            longest_stage=1,
            tiers={self.far.name: starts} | {self.near.name: inside},
        )
        most = max(least_sweeps(size, slots) for _, size in parts)
        return Totals(counts, most + (others > 0), 0)


def segment_policies(
    stages: int, near: Tier, far: Tier, starts: int
) -> list[SegmentPolicy]:
    """Some for as many starts as there is room for; one if `near` is `far`, too."""
    most = min(starts + 1, stages) if near.name != far.name else 1
    return [SegmentPolicy(near, far, -(-stages // n)) for n in _spread(most)]


def _spread(most: int) -> Iterator[int]:
    """All numbers up to `most`, or a few hundred that grow geometrically."""
    k = 1
    while k < most:
        yield k
        k += max(1, k // 64)
    yield most

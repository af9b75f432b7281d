"""Counts of a policy, without its actions: by recurrence over its intervals.

An interval is told by how many stages it has, by what is free, and by how its start is
kept. Of a million steps there are some thousands of different ones. It is for policies
that do not ask where an interval lies, and tape one stage at a time.
"""

from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from retape._errors import PlanError
from retape.schedule._cost import Counts, TierCounts
from retape.schedule._policy_stream import Held, Policy, Released

R = TypeVar("R", bound=Hashable)

MOST_INTERVALS = 100_000
"""The most different intervals that are counted: 2 seconds of treeverse splits at 10^6
steps, 3 at 10^18 (a processor of a server, 2026-11-26)."""


class _Sum(NamedTuple):
    """Counts of an interval; peaks are of slots beside those held at its beginning.

    What is written and read each tier has: its `stores` and `restores`.
    """

    advances: int = 0
    kept_tapes: int = 0
    reverses: int = 0
    sweeps: int = 0
    peak: int = 0
    weight: int = 0
    tiers: tuple[TierCounts, ...] = ()


class Totals(NamedTuple):
    """What a policy comes to.

    Attributes:
        counts: The counts of a replay.
        sweeps: The most times that a stage is advanced.
        weight: The most that all slots weigh at once.
    """

    counts: Counts
    sweeps: int
    weight: int


class _Key(NamedTuple, Generic[R]):
    """An interval: its start is not kept (`held` is `None`), or kept and in hand."""

    stages: int
    room: R
    held: Held[R] | None = None


def policy_counts(
    policy: Policy[R],
    length: int,
    stage: int,
    room: R,
    *,
    state: int = 1,
    tape: int = 1,
    most: int = MOST_INTERVALS,
    tiers: Sequence[str] = ("memory",),
) -> Totals:
    """The counts of a replay, by recurrence over the distinct intervals.

    An explicit stack stands for the recursion.

    Args:
        policy: The decisions.
        length: Steps.
        stage: Steps in a stage.
        room: What is free at the beginning.
        state: What a state weighs.
        tape: What a tape in a slot weighs.
        most: The most different intervals that are counted.
        tiers: The tiers that the policy names.

    Raises:
        PlanError: If there are more.
    """
    adder = _Adder(policy, (state, tape), tuple(tiers))
    total = adder.total(length, -(-length // stage), room, most)
    each = dict(zip(tiers, total.tiers, strict=True))
    counts = Counts(
        advances=total.advances * stage,
        taped=length,
        stores=sum(tier.stores for tier in total.tiers) - total.kept_tapes,
        restores=sum(tier.restores for tier in total.tiers),
        reverses=total.reverses,
        peak_snapshots=total.peak,
        longest_stage=min(stage, length),
        kept_tapes=total.kept_tapes,
        tiers=each,
    )
    return Totals(counts, total.sweeps, total.weight)


class _Adder(Generic[R]):
    """The sums of all intervals that come up.

    Args:
        policy: The decisions.
        weights: What a state and a tape weigh.
        tiers: The tiers that the policy names.
    """

    def __init__(
        self, policy: Policy[R], weights: tuple[int, int], tiers: tuple[str, ...]
    ) -> None:
        self.policy, self.weights = policy, weights
        self.places = {name: place for place, name in enumerate(tiers)}
        self.none = (TierCounts(),) * len(tiers)
        self.known: dict[_Key[R], _Sum] = {}

    def total(self, length: int, stages: int, room: R, most: int) -> _Sum:
        """The sum of a whole run."""
        known, root = self.known, _Key(stages, room)
        stack = [root]
        while stack:
            if len(known) + len(stack) > most:
                raise _too_many(length, most)
            key = stack[-1]
            parts = [] if key in known else self._parts(key)
            missing = [part for part in parts if part not in known]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if key not in known:
                known[key] = self._sum(key, parts)
        return known[root]

    def _parts(self, key: _Key[R]) -> list[_Key[R]]:
        """The parts of an interval, those done first before the others."""
        size, room, held = key
        if size <= 1 or (held is not None and self.policy.is_alone(held)):
            return []
        if held is None:
            held = self.policy.keep(0, size, room)
            if held.tape:
                return [_Key(size - 1, held.room)]
            return [_Key(size, held.room, held)]
        split = held.stages
        right = _Key(size - split, held.room)
        if split == 1:
            return [right, _Key(1, held.room)]
        after = self.policy.after_read(0, split, held)
        if isinstance(after, Released):
            return [right, _Key(split, after.room)]
        return [right, _Key(split, after.room, after)]

    def _sum(self, key: _Key[R], parts: list[_Key[R]]) -> _Sum:
        if key.stages <= 1:
            return _Sum(reverses=1, tiers=self.none)
        if key.held is None:
            first = self.known[parts[0]]
            held = parts[0].held or Held("memory", True, key.room)
            return self._beside(first, held)
        place = self.places[key.held.tier]
        if not parts:
            rounds = key.stages - 1
            return _Sum(
                advances=rounds * key.stages // 2,
                reverses=key.stages,
                sweeps=rounds,
                tiers=_changed(self.none, place, restores=rounds),
            )
        return self._both(key, key.held, parts, place)

    def _both(
        self, key: _Key[R], held: Held[R], parts: list[_Key[R]], place: int
    ) -> _Sum:
        """The right part, a read of the start, and the left part."""
        right, left = self.known[parts[0]], self.known[parts[1]]
        if parts[1].held is None and parts[1].stages > 1:
            # The slot in use at its beginning is given back.
            left = left._replace(
                peak=left.peak - 1,
                weight=left.weight - self.weights[0],
                tiers=_changed(left.tiers, place, peak=-1),
            )
        tiers = tuple(
            TierCounts(a + b, c + d, max(e, f))
            for (a, c, e), (b, d, f) in zip(right.tiers, left.tiers, strict=True)
        )
        return _Sum(
            advances=key.stages - parts[0].stages + right.advances + left.advances,
            kept_tapes=right.kept_tapes + left.kept_tapes,
            reverses=right.reverses + left.reverses,
            sweeps=max(right.sweeps, 1 + left.sweeps),
            peak=max(right.peak, left.peak),
            weight=max(right.weight, left.weight),
            tiers=_changed(tiers, place, restores=1),
        )

    def _beside(self, part: _Sum, held: Held[R]) -> _Sum:
        """With what is kept at the interval's start, which is in use all along."""
        place = self.places[held.tier]
        return part._replace(
            kept_tapes=part.kept_tapes + held.tape,
            reverses=part.reverses + held.tape,
            peak=part.peak + 1,
            weight=part.weight + self.weights[held.tape],
            tiers=_changed(part.tiers, place, stores=1, peak=1),
        )


def _changed(
    tiers: tuple[TierCounts, ...],
    place: int,
    *,
    stores: int = 0,
    restores: int = 0,
    peak: int = 0,
) -> tuple[TierCounts, ...]:
    one = tiers[place]
    one = TierCounts(one.stores + stores, one.restores + restores, one.peak + peak)
    return (*tiers[:place], one, *tiers[place + 1 :])


def _too_many(length: int, most: int) -> PlanError:
    """The refusal to count a schedule for longer than some seconds."""
    return PlanError(
        f"a schedule of this kind of {length} steps has more than {most} "
        "different intervals, which would be counted one by one. Pass longer stages or "
        "more snapshots, or use the binomial split with states only, whose counts are "
        "in closed form."
    )

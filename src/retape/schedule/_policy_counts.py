"""Counts of a policy, without its actions: by recurrence over its intervals.

An interval is told by its stages, by what is free, and by how its start is kept. Of a
million steps there are some thousands of different ones.
"""

from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from retape.schedule._cost import Counts, TierCounts, too_many_intervals
from retape.schedule._policy_stream import Held, Policy

R = TypeVar("R", bound=Hashable)

MOST_INTERVALS = 2_000_000
"""The most intervals that are counted: those of a million tapes, in some seconds."""


class _Sum(NamedTuple):
    """Counts of an interval; peaks are of slots beside those held at its beginning."""

    advances: int = 0
    stores: int = 0
    kept_tapes: int = 0
    restores: int = 0
    reverses: int = 0
    sweeps: int = 0
    peak: int = 0
    memory: int = 0
    disk: int = 0
    weight: int = 0
    disk_stores: int = 0
    disk_restores: int = 0
    tiers: tuple[TierCounts, ...] = ()


class Totals(NamedTuple):
    """What a policy comes to.

    Attributes:
        counts: The counts of a replay.
        sweeps: The most times that a stage is advanced.
        weight: The most that all slots weigh at once.
        disk_stores: Snapshots written to disk.
        disk_restores: Snapshots read from it.
    """

    counts: Counts
    sweeps: int
    weight: int
    disk_stores: int
    disk_restores: int


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
    most: int | None = None,
    tiers: Sequence[str] = (),
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
        most: The most different intervals that are counted; by default two million.
        tiers: The tiers that are counted one by one, of those that the policy names.

    Raises:
        PlanError: If there are more.
    """
    most = MOST_INTERVALS if most is None else most
    root = _Key(-(-length // stage), room)
    empty = _Sum(reverses=1, tiers=(TierCounts(),) * len(tiers))
    places = {name: place for place, name in enumerate(tiers)}
    known: dict[_Key[R], _Sum] = {}
    stack = [root]
    while stack:
        key = stack[-1]
        if len(known) + len(stack) > most:
            raise too_many_intervals(length, most)
        needed = [] if key in known or key.stages <= 1 else _children(policy, key)
        missing = [child for child in needed if child not in known]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        if key not in known:
            found = _add_up(key, needed, known, (state, tape)) if needed else empty
            if tiers and needed:
                found = found._replace(tiers=_each_tier(key, needed, known, places))
            known[key] = found
    total = known[root]
    counts = Counts(
        advances=total.advances * stage,
        taped=length,
        stores=total.stores,
        restores=total.restores,
        reverses=total.reverses,
        peak_snapshots=total.peak,
        longest_stage=min(stage, length),
        kept_tapes=total.kept_tapes,
        peak_disk=total.disk,
        peak_memory=total.memory,
        tiers=dict(zip(tiers, total.tiers, strict=True)),
    )
    return Totals(
        counts, total.sweeps, total.weight, total.disk_stores, total.disk_restores
    )


def _children(policy: Policy[R], key: _Key[R]) -> list[_Key[R]]:
    """The parts of an interval, those done first before the others."""
    size, room, held = key
    if held is None:
        held = policy.keep(size, room)
        if held.tape:
            return [_Key(size - 1, held.room)]
        return [_Key(size, held.room, held)]
    split = policy.split(size, held)
    right, left = _Key(size - split, held.room), _Key(split, held.room, held)
    back = policy.gives_back(split, held) if split > 1 else None
    return [right, left if back is None else _Key(split, back)]


def _add_up(
    key: _Key[R],
    needed: list[_Key[R]],
    known: dict[_Key[R], _Sum],
    weights: tuple[int, int],
) -> _Sum:
    first = known[needed[0]]
    if key.held is None:
        held = needed[0].held
        return _beside(first, held or Held("memory", True, key.room), weights)
    right, left = first, known[needed[1]]
    if needed[1].held is None and needed[1].stages > 1:
        left = _without(left, key.held.tier, weights[0])
    return _Sum(
        advances=key.stages - needed[0].stages + right.advances + left.advances,
        stores=right.stores + left.stores,
        kept_tapes=right.kept_tapes + left.kept_tapes,
        restores=1 + right.restores + left.restores,
        reverses=right.reverses + left.reverses,
        sweeps=max(right.sweeps, 1 + left.sweeps),
        peak=max(right.peak, left.peak),
        memory=max(right.memory, left.memory),
        disk=max(right.disk, left.disk),
        weight=max(right.weight, left.weight),
        disk_stores=right.disk_stores + left.disk_stores,
        disk_restores=(key.held.tier == "disk")
        + right.disk_restores
        + left.disk_restores,
    )


def _each_tier(
    key: _Key[R],
    needed: list[_Key[R]],
    known: dict[_Key[R], _Sum],
    places: dict[str, int],
) -> tuple[TierCounts, ...]:
    """The counts of the tiers, as `_add_up` has them for all together."""
    first = known[needed[0]].tiers
    if key.held is None:
        held = needed[0].held
        return first if held is None else _changed(first, places[held.tier], 1, 0, 1)
    left, place = known[needed[1]].tiers, places[key.held.tier]
    if needed[1].held is None and needed[1].stages > 1:
        left = _changed(left, place, 0, 0, -1)
    both = tuple(
        TierCounts(a + b, c + d, max(e, f))
        for (a, c, e), (b, d, f) in zip(first, left, strict=True)
    )
    return _changed(both, place, 0, 1, 0)


def _changed(
    tiers: tuple[TierCounts, ...], place: int, stores: int, restores: int, peak: int
) -> tuple[TierCounts, ...]:
    one = tiers[place]
    one = TierCounts(one.stores + stores, one.restores + restores, one.peak + peak)
    return (*tiers[:place], one, *tiers[place + 1 :])


def _beside(part: _Sum, held: Held[R], weights: tuple[int, int]) -> _Sum:
    """With what is kept at the interval's start, which is in use all along."""
    on_disk = held.tier == "disk"
    return part._replace(
        stores=part.stores + (not held.tape),
        kept_tapes=part.kept_tapes + held.tape,
        reverses=part.reverses + held.tape,
        peak=part.peak + 1,
        memory=part.memory + (not on_disk),
        disk=part.disk + on_disk,
        weight=part.weight + weights[held.tape],
        disk_stores=part.disk_stores + on_disk,
    )


def _without(part: _Sum, tier: str, weight: int) -> _Sum:
    """The same, where a slot in use at its beginning is given back."""
    on_disk = tier == "disk"
    return part._replace(
        peak=part.peak - 1,
        memory=part.memory - (not on_disk),
        disk=part.disk - on_disk,
        weight=part.weight - weight,
    )

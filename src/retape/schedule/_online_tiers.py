"""Placing snapshots over two tiers while the end of the run is not known.

Each time it is asked, the controller weighs what it can do by one number, the cost of
going back if the run ended now. With snapshots at x_0 < ... < x_{h-1}, m_i the slots
that are free beside those up to x_i, and e the last stage, that is

    K = sum_i  r(tier of x_i) + X(tier of x_i, x_{i+1} - x_i, m_i),   x_h = e

with X of `_room_table`. It may keep nothing; store the state in a free slot; give a
snapshot up for it; or, where the near tier is full, *move* one to the far tier and take
its slot. Without moves the start state stays near for good, where short runs want
it: the cost is then up to 1.16 times that of a known length, with them 1.13 at most
(`benchmarks/schedules/online_tiers.py`).

Beyond 256 stages it is asked at every q-th only, q a power of two: in all a few hundred
times for each doubling of the run.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from retape.schedule._online_least_cost import NOTHING, Move, Placed
from retape.schedule._room_policy import RoomPolicy
from retape.schedule._room_table import Rooms
from retape.schedule._tier import Tier

_ASKED = 8
"""Each doubling of the run is asked about at up to 2^8 stages."""


class Snapshot(NamedTuple):
    """A state that is held: its stage, and where it is."""

    stage: int
    slot: int
    tier: str


class _Option(NamedTuple):
    """What can be done: drop one, move one, and store on a tier; and the cost."""

    cost: float
    tier: str | None = None
    dropped: int | None = None
    moved: int | None = None


@dataclass(frozen=True, slots=True)
class TieredPlacement:
    """The controller of a run over two tiers.

    Examples:
        >>> from retape import Tier
        >>> from retape.schedule import OnlineTiers
        >>> state = OnlineTiers((Tier("memory", 1), Tier("disk", 2, 1, 5))).begin()
        >>> for stage in range(40):
        ...     state, placed = state.place(stage)
        >>> state.positions, state.tiers
        ((0, 28), ('disk', 'memory'))
    """

    policy: RoomPolicy
    held: tuple[Snapshot, ...] = field(default=())

    @property
    def positions(self) -> tuple[int, ...]:
        """The stages of the snapshots."""
        return tuple(snapshot.stage for snapshot in self.held)

    @property
    def slots(self) -> tuple[int, ...]:
        """Their slots, each on its tier."""
        return tuple(snapshot.slot for snapshot in self.held)

    @property
    def tiers(self) -> tuple[str, ...]:
        """Their tiers."""
        return tuple(snapshot.tier for snapshot in self.held)

    def place(self, stage: int) -> tuple["TieredPlacement", Placed]:
        """Decide about the capsule before `stage`, which is not the last."""
        if stage % _grid(stage):
            return self, NOTHING
        best = min(self._options(stage), key=lambda option: option.cost)
        if best.tier is None:
            return self, NOTHING
        held, dropped = list(self.held), tuple[tuple[int, int], ...]()
        moved = tuple[Move, ...]()
        if best.moved is not None:
            at, slot, tier = held[best.moved]
            far = self.policy.tiers[-1].name
            to = self._free(far)
            held[best.moved] = Snapshot(at, to, far)
            moved = ((at, (tier, slot), (far, to)),)
        elif best.dropped is not None:
            at, slot, _ = held.pop(best.dropped)
            dropped = ((at, slot),)
        else:
            slot = self._free(best.tier)
        held.append(Snapshot(stage, slot, best.tier))
        after = replace(self, held=tuple(held))
        return after, Placed(slot, dropped, best.tier, moved)

    def next_change(self, stage: int, stop: int) -> int:
        """The first stage from `stage` on about which `place` may say anything."""
        q = _grid(stage)
        return min(stop, -(-stage // q) * q)

    def rooms(self) -> list[Rooms]:
        """What is free beside the snapshots up to each one."""
        room, found = self.policy.slots, list[Rooms]()
        for snapshot in self.held:
            room = self.policy.changed(snapshot.tier, room, -1)
            found.append(room)
        return found

    def _options(self, stage: int) -> Iterator[_Option]:
        """All that can be done, the cost of each as if the run ended after `stage`."""
        price, tiers, held = self.policy.price, self.policy.tiers, self.held
        if not held:
            for tier, free in zip(tiers, self.policy.slots, strict=True):
                if free:
                    yield _Option(self._on(tier, self.policy.slots), tier.name)
            return
        rooms = self.rooms()
        ends = [*(snapshot.stage for snapshot in held[1:]), stage]
        gaps = [end - x.stage for x, end in zip(held, ends, strict=True)]
        # Of each interval: as it is, and with one more slot free on a tier.
        now = [
            price(x.tier, gap, r) for x, gap, r in zip(held, gaps, rooms, strict=True)
        ]
        total, (m, d) = sum(now), rooms[-1]
        near, far = tiers
        longer = price(held[-1].tier, stage + 1 - held[-1].stage, rooms[-1])
        yield _Option(total - now[-1] + longer)
        for tier, free in zip(tiers, (m, d), strict=True):
            if free:
                yield _Option(total + self._on(tier, (m, d)), tier.name)
        if m == 0:
            yield from self._giving_up(near, gaps, rooms, now)
            if d > 0:
                yield from self._moving(gaps, rooms, now)
        if d == 0:
            yield from self._giving_up(far, gaps, rooms, now)

    def _on(self, tier: Tier, room: Rooms) -> float:
        """What a snapshot before the next stage costs on a tier with a free slot."""
        left = self.policy.changed(tier.name, room, -1)
        return tier.write + self.policy.price(tier.name, 1, left)

    def _giving_up(
        self, tier: Tier, gaps: list[int], rooms: list[Rooms], now: list[float]
    ) -> Iterator[_Option]:
        """Snapshots of a tier given up for the new one, but for the start state."""
        price, held = self.policy.price, self.held
        with_one = [self.policy.changed(tier.name, room, 1) for room in rooms]
        more = [
            price(x.tier, gap, room)
            for x, gap, room in zip(held, gaps, with_one, strict=True)
        ]
        fixed = tier.write + price(tier.name, 1, rooms[-1])
        before, after = sum(now), 0.0
        for j in range(len(held) - 1, 0, -1):
            before -= now[j]
            if held[j].tier == tier.name:
                left = held[j - 1]
                joined = price(left.tier, gaps[j - 1] + gaps[j], rooms[j - 1])
                cost = fixed + before - now[j - 1] + joined + after
                yield _Option(cost, tier.name, dropped=j)
            after += more[j]

    def _moving(
        self, gaps: list[int], rooms: list[Rooms], now: list[float]
    ) -> Iterator[_Option]:
        """Snapshots moved to the far tier, for the new one to take their slots."""
        price, held, (near, far) = self.policy.price, self.held, self.policy.tiers
        other = [(m + 1, d - 1) for m, d in rooms]
        moved = [
            price(x.tier, gap, room)
            for x, gap, room in zip(held, gaps, other, strict=True)
        ]
        fixed = near.read + far.write + self._on(near, other[-1])
        before, after = sum(now), 0.0
        for j in range(len(held) - 1, -1, -1):
            before -= now[j]
            if held[j].tier == near.name:
                there = price(far.name, gaps[j], other[j])
                yield _Option(fixed + before + there + after, near.name, moved=j)
            after += moved[j]

    def _free(self, tier: str) -> int:
        """The first free slot of a tier."""
        taken = {snapshot.slot for snapshot in self.held if snapshot.tier == tier}
        return next(slot for slot in range(len(taken) + 1) if slot not in taken)


def _grid(stage: int) -> int:
    return 1 << max(0, stage.bit_length() - 1 - _ASKED)

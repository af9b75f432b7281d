"""Placing snapshots over two tiers while the end of the run is not known.

Each time it is asked, the controller weighs what it can do by one number, the cost of
going back if the run ended now. With snapshots at x_0 < ... < x_{h-1}, m_i the slots
that are free beside those up to x_i, and e the last stage, that is

    K = sum_i  r(tier of x_i) + X(tier of x_i, x_{i+1} - x_i, m_i),   x_h = e

with X of `_kept_table`. It may keep nothing; store the state in a free slot; give a
snapshot up for it; or, where the near tier is full, *move* one to the far tier and take
its slot. Without moves the start state stays near for good, where short runs want
it: the cost is then up to 1.16 times that of a known length, with them 1.13 at most
(`benchmarks/schedules/online.py`).

Beyond 256 stages it is asked at every q-th only, q a power of two: in all a few hundred
times for each doubling of the run.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from retape.schedule._placing._online_memory import NOTHING, Move, Placed
from retape.schedule._tables._space import Kind, Rooms
from retape.schedule._tables._table_policy import TablePolicy

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

    Attributes:
        policy: The decisions on the way back.
        whole: The slots of each tier.
        held: The snapshots that there are.

    Examples:
        >>> from retape import Tier
        >>> from retape.schedule import OnlineTiers
        >>> state = OnlineTiers((Tier("memory", 1), Tier("disk", 2, 1, 5))).begin()
        >>> for stage in range(40):
        ...     state, placed = state.place(stage)
        >>> state.positions, state.tiers
        ((0, 28), ('disk', 'memory'))
    """

    policy: TablePolicy[Rooms]
    whole: Rooms
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
            far = self._kinds[-1].tier
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
        room, found = self.whole, list[Rooms]()
        for snapshot in self.held:
            room = self._beside(self.policy.space.of(snapshot.tier), room)
            found.append(room)
        return found

    @property
    def _kinds(self) -> tuple[Kind, ...]:
        return self.policy.space.kinds

    def _beside(self, kind: Kind, room: Rooms) -> Rooms:
        found = self.policy.space.take(room, kind)
        assert found is not None
        return found

    def _prices(self, gaps: list[int], rooms: list[Rooms]) -> list[float]:
        """What each interval costs between snapshots with so many stages."""
        intervals = zip(self.held, gaps, rooms, strict=True)
        return [self.policy.price(x.tier, gap, room) for x, gap, room in intervals]

    def _options(self, stage: int) -> Iterator[_Option]:
        """All that can be done, the cost of each as if the run ended after `stage`."""
        price, kinds, held = self.policy.price, self._kinds, self.held
        if not held:
            yield from self._storing(0.0, self.whole)
            return
        rooms = self.rooms()
        ends = [*(snapshot.stage for snapshot in held[1:]), stage]
        gaps = [end - x.stage for x, end in zip(held, ends, strict=True)]
        # Of each interval: as it is, and with one more slot free on a tier.
        now = self._prices(gaps, rooms)
        total, (m, d) = sum(now), rooms[-1]
        near, far = kinds
        longer = price(held[-1].tier, stage + 1 - held[-1].stage, rooms[-1])
        yield _Option(total - now[-1] + longer)
        yield from self._storing(total, rooms[-1])
        if m == 0:
            yield from self._giving_up(near, gaps, rooms, now)
            if d > 0:
                yield from self._moving(gaps, rooms, now)
        if d == 0:
            yield from self._giving_up(far, gaps, rooms, now)

    def _storing(self, total: float, room: Rooms) -> Iterator[_Option]:
        """A snapshot in a free slot, beside what costs so much."""
        for kind, free in zip(self._kinds, room, strict=True):
            if free:
                yield _Option(total + self._on(kind, room), kind.tier)

    def _on(self, kind: Kind, room: Rooms) -> float:
        """What a snapshot before the next stage costs on a tier with a free slot."""
        return kind.write + self.policy.price(kind.tier, 1, self._beside(kind, room))

    def _giving_up(
        self, kind: Kind, gaps: list[int], rooms: list[Rooms], now: list[float]
    ) -> Iterator[_Option]:
        """Snapshots of a tier given up for the new one, but for the start state."""
        price, held = self.policy.price, self.held
        more = self._prices(gaps, [self.policy.space.give(r, kind) for r in rooms])
        fixed = kind.write + price(kind.tier, 1, rooms[-1])
        before, after = sum(now), 0.0
        for j in range(len(held) - 1, 0, -1):
            before -= now[j]
            if held[j].tier == kind.tier:
                left = held[j - 1].tier
                joined = price(left, gaps[j - 1] + gaps[j], rooms[j - 1])
                cost = fixed + before - now[j - 1] + joined + after
                yield _Option(cost, kind.tier, dropped=j)
            after += more[j]

    def _moving(
        self, gaps: list[int], rooms: list[Rooms], now: list[float]
    ) -> Iterator[_Option]:
        """Snapshots moved to the far tier, for the new one to take their slots."""
        price, held, (near, far) = self.policy.price, self.held, self._kinds
        other = [(m + 1, d - 1) for m, d in rooms]
        moved = self._prices(gaps, other)
        fixed = near.read + far.write + self._on(near, other[-1])
        before, after = sum(now), 0.0
        for j in range(len(held) - 1, -1, -1):
            before -= now[j]
            if held[j].tier == near.tier:
                there = price(far.tier, gaps[j], other[j])
                yield _Option(fixed + before + there + after, near.tier, moved=j)
            after += moved[j]

    def _free(self, tier: str) -> int:
        """The first free slot of a tier."""
        taken = {snapshot.slot for snapshot in self.held if snapshot.tier == tier}
        return next(slot for slot in range(len(taken) + 1) if slot not in taken)


def _grid(stage: int) -> int:
    return 1 << max(0, stage.bit_length() - 1 - _ASKED)

"""Schedules of runs whose end is not known, of each kind: what the driver asks.

The forward sweep asks a *controller* about stage after stage; at the end `reverse` goes
on from what it has kept. `actions` is the same run for a length that is known by then,
for one that is taken up again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import Any, ClassVar, Protocol

from retape._bytes import format_bytes
from retape._errors import BudgetError
from retape.schedule._action import Action, Advance, Drop, Store
from retape.schedule._mixed_table import mixed_table
from retape.schedule._online import (
    begin_online,
    online_actions,
    online_advances,
    reverse_online,
    turn_advances,
)
from retape.schedule._online_least_cost import Placed
from retape.schedule._online_tiers import TieredPlacement
from retape.schedule._policy_stream import Held, Stream
from retape.schedule._tier_policy import TierPolicy
from retape.schedule._tier_table import TierCosts
from retape.schedule._whole import whole


class Placement(Protocol):
    """A controller: the snapshots that are held, and what becomes of the next one."""

    @property
    def positions(self) -> tuple[int, ...]:
        """The stages of the snapshots."""
        ...

    @property
    def slots(self) -> tuple[int, ...]:
        """Their slots."""
        ...

    @property
    def tiers(self) -> tuple[str, ...]:
        """Their tiers."""
        ...

    def place(self, stage: int) -> tuple[Any, Placed]:
        """Decide about the capsule before `stage`, which is not the last."""
        ...

    def next_change(self, stage: int, stop: int) -> int:
        """The first stage from `stage` on about which `place` may say anything."""
        ...


class Online(Protocol):
    """A schedule of a run whose end is not known.

    Attributes:
        keeps_tapes: Whether slots may hold tapes.
    """

    keeps_tapes: ClassVar[bool]

    @property
    def stage(self) -> int:
        """Steps taped at a time."""
        ...

    def begin(self) -> Any:
        """The controller before the first stage."""
        ...

    def reverse(self, state: Any, length: int) -> Iterator[Action]:
        """The actions from the end of the forward sweep to the end."""
        ...

    def actions(self, length: int) -> Iterator[Action]:
        """All actions of a run that turned out to have this length."""
        ...

    def advances(self, length: int) -> int | None:
        """The steps that `actions` advances, if that is told in little time."""
        ...

    def turn_advances(self, state: Any, length: int) -> int | None:
        """The steps that `reverse` advances, if that is told in little time."""
        ...


@dataclass(frozen=True, slots=True)
class OnlineBinomial:
    """States in memory: the least-cost placement."""

    keeps_tapes: ClassVar[bool] = False

    snapshots: int
    stage: int = 1

    def begin(self) -> Any:
        return begin_online(self.snapshots)

    def reverse(self, state: Any, length: int) -> Iterator[Action]:
        return reverse_online(state, length, self.stage)

    def actions(self, length: int) -> Iterator[Action]:
        return online_actions(length, self.snapshots, self.stage)

    def advances(self, length: int) -> int | None:
        return online_advances(length, self.snapshots, self.stage)

    def turn_advances(self, state: Any, length: int) -> int | None:
        return turn_advances(state, length, self.stage)


@dataclass(frozen=True, slots=True)
class OnlineTiers:
    """States in memory and on disk, by what steps and transfers cost.

    Args:
        memory: Slots in memory.
        disk: Slots on disk.
        costs: What things cost, per stage.
        stage: Steps taped at a time.

    Examples:
        >>> from retape.schedule import OnlineTiers, replay
        >>> online = OnlineTiers(memory=2, disk=3)
        >>> replay(online.actions(20), 20, capacity={"memory": 2, "disk": 3}).advances
        53
    """

    keeps_tapes: ClassVar[bool] = False

    memory: int
    disk: int
    costs: TierCosts = TierCosts()
    stage: int = 1

    def begin(self) -> TieredPlacement:
        """The controller before the first stage."""
        return TieredPlacement(TierPolicy(self.memory, self.disk, self.costs))

    def reverse(self, state: TieredPlacement, length: int) -> Iterator[Action]:
        """The actions from the end of the forward sweep to the end."""
        held = [
            (x.stage, Held[Any](x.tier, False, room), x.slot)
            for x, room in zip(state.held, state.rooms(), strict=True)
        ]
        room = self.memory, self.disk
        return iter(Stream(state.policy, length, self.stage, room, held))

    def actions(self, length: int) -> Iterator[Action]:
        """All actions of a run that turned out to have this length."""
        return _actions(self, length)

    def advances(self, length: int) -> None:
        """Not told in little time."""

    def turn_advances(self, state: TieredPlacement, length: int) -> None:
        """Not told in little time."""


@dataclass(frozen=True, slots=True)
class OnlineMixed:
    """States on the way forward, states and tapes on the way back.

    On the way forward a tape would not help: whether its stage is one of the last,
    which are the ones to tape, is what is not known.

    Args:
        budget: What all slots together may take, in the unit of the next two.
        state: What a state takes.
        tape: What the tape of a stage takes.
        stage: Steps taped at a time.

    Raises:
        BudgetError: If the start state takes more than the budget.

    Examples:
        >>> from retape.schedule import OnlineMixed, replay
        >>> counts = replay(OnlineMixed(budget=5).actions(100), 100)
        >>> counts.advances, counts.kept_tapes
        (260, 61)
    """

    keeps_tapes: ClassVar[bool] = True

    budget: int
    state: int = 1
    tape: int = 1
    stage: int = 1

    def __post_init__(self) -> None:
        if self.budget < self.state:
            raise BudgetError(
                f"`budget={self.budget}` does not hold the start state of a run whose "
                f"length is not known. The least possible is {self.state} "
                f"({format_bytes(self.state)}, if these are bytes).",
                self.state,
            )

    def begin(self) -> Any:
        """The controller before the first stage."""
        return begin_online(self.budget // self.state)

    def reverse(self, state: Any, length: int) -> Iterator[Action]:
        """The actions from the end of the forward sweep to the end."""
        last = max(0, -(-length // self.stage) - 1)
        unit = gcd(self.state, self.tape)
        room = min(self.budget, (last + 1) * max(self.state, self.tape)) // unit
        own, tape = self.state // unit, self.tape // unit
        table = mixed_table(max(1, last), room, own, tape)
        held = [
            (at, Held("memory", False, room - (i + 1) * own), slot)
            for i, (at, slot) in enumerate(
                zip(state.positions, state.slots, strict=False)
            )
        ]
        return iter(Stream(table, length, self.stage, room, held))

    def actions(self, length: int) -> Iterator[Action]:
        """All actions of a run that turned out to have this length."""
        return _actions(self, length)

    def advances(self, length: int) -> None:
        """Not told in little time."""

    def turn_advances(self, state: Any, length: int) -> None:
        """Not told in little time."""


def _actions(online: Online, length: int) -> Iterator[Action]:
    """A run whose length is known by now.

    What the run moved to disk later is stored there at once: the slot that it moved to
    was free until then, since the slots in use on disk never get fewer on the way.
    """
    length, stage = whole("length", length), online.stage
    last = max(0, -(-length // stage) - 1)
    state, final, placed = _placements(online, last)
    at = 0
    for p, decision in placed:
        if at < p * stage:
            yield Advance(at, p * stage)
            at = p * stage
        for step, _ in decision.dropped:
            yield Drop(step * stage, *final[step])
        if decision.slot is not None:
            yield Store(at, *final[p])
    if at < last * stage:
        yield Advance(at, last * stage)
    yield from online.reverse(state, length)


def _placements(
    online: Online, last: int
) -> tuple[Any, dict[int, tuple[int, str]], list[tuple[int, Placed]]]:
    """The controller after the way forward, all last places, and all decisions."""
    state: Any = online.begin()
    final: dict[int, tuple[int, str]] = {}
    placed: list[tuple[int, Placed]] = []
    p = 0
    while (p := state.next_change(p, last)) < last:
        state, decision = state.place(p)
        if decision.slot is not None or decision.dropped:
            placed.append((p, decision))
        for step, _, slot in decision.moved:
            final[step] = slot, "disk"
        if decision.slot is not None:
            final[p] = decision.slot, decision.tier
        p += 1
    return state, final, placed

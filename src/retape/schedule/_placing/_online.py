"""Schedules of runs whose length is not known until they end.

The forward sweep asks a *controller* about stage after stage; at the end `reverse` goes
on from what it has kept. `actions` is the same run for a length that is known by then,
for one that is taken up again. All of this counts *stages*; what is said of steps is
multiplied by the stage length. A pure controller is asked once per stage, in order,
whether the capsule at its start is kept. Its state is a few integers and two short
arrays, so that it can be transcribed into traced arithmetic; the next three paragraphs
are the whole of it.

**When it is asked.** About stage p only when it is known that p is not the last stage.
Whoever runs the program therefore holds the capsule before stage p until stage p + 1
has begun. At the end the capsule before the last stage, N - 1, is in hand and never
stored; the stages asked about were 0, ..., N - 2.

**State.** `held` = m, how many snapshots there are; `positions`, of which the first m
entries x_0 = 0 < x_1 < ... are their stages; `slots`, a permutation of 0, ..., s-1:
snapshot i lies in physical slot slots[i], and slots[m:] are free. Storing p without an
eviction writes to slots[m]. Evicting snapshot j moves positions[j+1:] and slots[j+1:]
one place to the left, p becomes the last position, and its slot is the old slots[j].

**The turn.** After the last stage is reversed the snapshots are taken from the last to
the first: the stages from x_i to the next snapshot (to N - 1 for the last one) are
reversed by the binomial split with s - i slots, with new snapshots in slots that are
free then. That this is the cheapest way to reverse over the given
snapshots, none of them given up, is the optimality of the binomial split; that giving
some up first does not help the least-cost placement is checked by dynamic programming
in the tests. The doubling placement does gain by it, see `Doubling.turn`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import gcd
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, get_args

from retape._arguments import settle, whole, word_of
from retape._bytes import format_bytes
from retape._errors import BudgetError, PlanError
from retape.schedule._action import Action, Advance, Drop, Store
from retape.schedule._binomial import beta, optimal_advances
from retape.schedule._hierarchy import check_tiers
from retape.schedule._placing._online_memory import (
    Doubling,
    LeastCost,
    Placed,
    gap_advances,
)
from retape.schedule._placing._online_tiers import TieredPlacement
from retape.schedule._policy_stream import Held, Stream
from retape.schedule._split import BinomialPolicy
from retape.schedule._tables._table_policy import mixed_policy, slots_for_parts
from retape.schedule._tier import StepCosts, Tier

PlacementName: TypeAlias = Literal["least-cost", "doubling"]


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


class Online:
    """A schedule of a run whose end is not known.

    Attributes:
        keeps_tapes: Whether slots may hold tapes.
        stage: Steps taped at a time.
    """

    __slots__ = ()

    keeps_tapes: ClassVar[bool] = False
    stage: int

    def begin(self) -> Any:
        """The controller before the first stage."""
        raise NotImplementedError

    def reverse(self, state: Any, length: int) -> Iterator[Action]:
        """The actions from the end of the forward sweep to the end."""
        raise NotImplementedError

    def _back(
        self, state: Placement, length: int, policy: Any, room: Any, free: Iterable[Any]
    ) -> Iterator[Action]:
        """The actions of a policy from the end of the forward sweep to the end.

        Args:
            state: The snapshots that are held.
            length: The steps of the run.
            policy: Decides on the way back.
            room: What is free where none is held.
            free: What is free beside the snapshots up to each one.
        """
        each = zip(state.positions, state.tiers, free, state.slots, strict=False)
        held = [(at, Held(tier, False, left), slot) for at, tier, left, slot in each]
        return iter(Stream(policy, length, self.stage, room, held))

    def actions(self, length: int) -> Iterator[Action]:
        """All actions of a run that turned out to have this length.

        The driver advances the last stage once more than these actions say, since only
        that tells it that the stage is the last.

        Raises:
            PlanError: If `length` is no number of steps.
        """
        length, stage = whole("length", length, 0), self.stage
        last = _last(length, stage)
        state, final, placed = _placements(self, last)
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
        yield from self.reverse(state, length)

    def advances(self, length: int) -> int | None:
        """The steps that `actions` advances, if that is told in little time."""
        return None

    def turn_advances(self, state: Any, length: int) -> int | None:
        """The steps that `reverse` advances, if that is told in little time."""
        return None


@dataclass(frozen=True, slots=True)
class OnlineBinomial(Online):
    """States in memory, reversed by binomial splits.

    Args:
        snapshots: The most that are held at once.
        stage: Steps taped at a time.
        placement: "least-cost", or "doubling" the distance of snapshots.

    Raises:
        PlanError: If a count cannot be, or there is no such placement.

    Examples:
        >>> from retape.schedule import OnlineBinomial, replay
        >>> online = OnlineBinomial(3)
        >>> replay(online.actions(10), 10, capacity=3).advances, online.advances(10)
        (15, 15)
        >>> OnlineBinomial(2).advances(10**6)
        941928561
        >>> state = online.begin()
        >>> for stage in range(5):
        ...     state, placed = state.place(stage)
        >>> state.positions, online.turn_advances(state, 6)
        ((0, 1, 4), 2)
    """

    snapshots: int
    stage: int = 1
    placement: PlacementName = "least-cost"

    def __post_init__(self) -> None:
        settle(self, snapshots=1, stage=1)
        word_of("placement", self.placement, get_args(PlacementName))

    def begin(self) -> LeastCost | Doubling:
        """The controller before the first stage."""
        kind = Doubling if self.placement == "doubling" else LeastCost
        return kind.begin(self.snapshots)

    def reverse(self, state: LeastCost | Doubling, length: int) -> Iterator[Action]:
        """The actions from the end of the forward sweep to the end.

        The working capsule stands before the last stage of the run of `length` steps,
        and the snapshots are where `state` says.
        """
        state, placed = state.turn(_last(length, self.stage))
        slots = state.snapshots
        free = range(slots - 1, -1, -1)
        back = self._back(state, length, BinomialPolicy(), slots, free)
        yield next(back)
        for at, slot in placed.dropped:
            yield Drop(at * self.stage, slot)
        yield from back

    def advances(self, length: int) -> int:
        """The steps that `actions` advances, with nothing made but placements.

        In time in proportion to the snapshots written on the way, not to the steps.
        """
        last, least = _last(length, self.stage), self.placement
        if least == "least-cost" and last < beta(self.snapshots, 2):
            # As few as if the length were known.
            return self.stage * optimal_advances(last + 1, self.snapshots)
        state: Any = self.begin()
        p = 0
        while (p := state.next_change(p, last)) < last:
            state, _ = state.place(p)
            p += 1
        return last * self.stage + self.turn_advances(state, length)

    def turn_advances(self, state: LeastCost | Doubling, length: int) -> int:
        """The steps that `reverse` advances."""
        last = _last(length, self.stage)
        turned, _ = state.turn(last)
        return self.stage * gap_advances(turned.positions, last, turned.snapshots)


@dataclass(frozen=True, slots=True)
class OnlineTiers(Online):
    """States on two tiers, by what steps and transfers cost.

    Args:
        tiers: The near one and the far one; their snapshots are numbers.
        costs: Of `forward`, `tape` and `backward`, per stage.
        stage: Steps taped at a time.

    Raises:
        PlanError: If there are not two tiers, or no slot on either.

    Examples:
        >>> from retape import Tier
        >>> from retape.schedule import OnlineTiers, replay
        >>> online = OnlineTiers((Tier("memory", 2), Tier("disk", 3, 5, 5)))
        >>> replay(online.actions(20), 20, capacity={"memory": 2, "disk": 3}).advances
        53
    """

    tiers: tuple[Tier, ...]
    costs: StepCosts = StepCosts()
    stage: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "tiers", tuple(self.tiers))
        settle(self, stage=1)
        check_tiers(self.tiers)
        if len(self.tiers) != 2 or not any(self._slots):
            raise PlanError(
                f"`tiers={self.tiers!r}` is not valid: while the end of a run is not "
                "known, snapshots are placed on two tiers, a near one and a far one, "
                "with a slot on one of them at least. Pass two."
            )

    def begin(self) -> TieredPlacement:
        """The controller before the first stage."""
        policy = slots_for_parts(self._slots, self.tiers, self.costs.forward)
        return TieredPlacement(policy, self._slots)

    def reverse(self, state: TieredPlacement, length: int) -> Iterator[Action]:
        """The actions from the end of the forward sweep to the end."""
        return self._back(state, length, state.policy, self._slots, state.rooms())

    @property
    def _slots(self) -> tuple[int, ...]:
        return tuple(int(tier.snapshots) for tier in self.tiers)


@dataclass(frozen=True, slots=True)
class OnlineMixed(Online):
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
        settle(self, budget=0, state=1, tape=1, stage=1)
        if self.budget < self.state:
            raise BudgetError(
                f"`budget={self.budget}` does not hold the start state of a run whose "
                f"length is not known. The least possible is {self.state} "
                f"({format_bytes(self.state)}, if these are bytes).",
                self.state,
            )

    def begin(self) -> Any:
        """The controller before the first stage."""
        return LeastCost.begin(self.budget // self.state)

    def reverse(self, state: Any, length: int) -> Iterator[Action]:
        """The actions from the end of the forward sweep to the end."""
        last = _last(length, self.stage)
        unit = gcd(self.state, self.tape)
        room = min(self.budget, (last + 1) * max(self.state, self.tape)) // unit
        own, tape = self.state // unit, self.tape // unit
        policy = mixed_policy(max(1, last), room, own, tape)
        free = range(room - own, -1, -own)
        return self._back(state, length, policy, room, free)


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
        for step, _, (tier, slot) in decision.moved:
            final[step] = slot, tier
        if decision.slot is not None:
            final[p] = decision.slot, decision.tier
        p += 1
    return state, final, placed


def _last(length: int, stage: int) -> int:
    """The last stage of a run."""
    return max(0, -(-whole("length", length) // stage) - 1)

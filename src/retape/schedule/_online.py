"""Schedules of runs whose length is not known until they end.

All of this counts *stages*; `online_actions` and the driver multiply by the stage
length. A pure controller is asked once per stage, in order, whether the capsule at its
start is kept. Its state is a few integers and two short arrays, so that it can be
transcribed into traced arithmetic; the next three paragraphs are the whole of it.

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
reversed by the binomial split with s - i slots. New snapshots at depth j take slot
slots[j], which is free then. That this is the cheapest way to reverse over the given
snapshots, none of them given up, is the optimality of the binomial split; that giving
some up first does not help the least-cost placement is checked by dynamic programming
in the tests. The doubling placement does gain by it, see `Doubling.turn`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from retape._errors import PlanError
from retape.schedule._action import Action, Advance, Drop, Reverse, Store
from retape.schedule._binomial import beta, optimal_advances
from retape.schedule._online_least_cost import (
    NOTHING,
    LeastCost,
    Placed,
    enough,
    known_advances,
)
from retape.schedule._split import stage_rule
from retape.schedule._tree import Node, Tree, walk
from retape.schedule._whole import whole

PlacementName: TypeAlias = Literal["least-cost", "doubling"]


@dataclass(frozen=True, slots=True)
class Doubling:
    """Keep every h-th stage; when the slots run out, drop every other one, double h.

    The state is h (`spacing`). Asked about p: if h does not divide p, it is not kept.
    Otherwise, if all s slots are taken, the snapshots with odd indices are dropped
    (positions and slots become their even entries followed by, for the slots, their odd
    ones), h doubles, and p is kept if the new h divides it.

    `turn` may halve the snapshots once more, and again: the snapshots x_0, x_c, x_2c,
    ... with c a power of 2 are kept, for the c of the least cost

        sum_i A(x_{(i+1)c} - x_{ic}, s - i),   the last gap ending at N - 1,

    and the least such c. Few writes (about s/2 for every doubling of N) and no
    arithmetic on the way are what it offers; its advances stay within 1.5 times the
    optimum (`benchmarks/schedules`), and for N <= s + 1 they are the optimum.

    Examples:
        >>> state = Doubling.begin(2)
        >>> for stage in range(4):
        ...     state, placed = state.place(stage)
        ...     print(state.positions, placed.slot)
        (0,) 0
        (0, 1) 1
        (0, 2) 1
        (0, 2) None
    """

    snapshots: int
    positions: tuple[int, ...]
    slots: tuple[int, ...]
    spacing: int = 1

    @property
    def tiers(self) -> tuple[str, ...]:
        """Where the snapshots are: all in memory."""
        return ("memory",) * len(self.positions)

    @classmethod
    def begin(cls, snapshots: int) -> "Doubling":
        """The state before stage 0."""
        return cls(enough(snapshots), (), tuple(range(snapshots)))

    def place(self, stage: int) -> tuple["Doubling", Placed]:
        """Decide about the capsule before `stage`, which is not the last."""
        if stage % self.spacing:
            return self, NOTHING
        state, dropped = self, ()
        if len(self.positions) == self.snapshots:
            state, dropped = self._thin(2)
            state = replace(state, spacing=2 * self.spacing)
            if stage % state.spacing:
                return state, Placed(None, dropped)
        if len(state.positions) == state.snapshots:
            return state, NOTHING  # a single slot, which holds the start state
        slot = state.slots[len(state.positions)]
        after = replace(state, positions=(*state.positions, stage))
        return after, Placed(slot, dropped)

    def next_change(self, stage: int, stop: int) -> int:
        """The first stage from `stage` on about which `place` may say anything."""
        return min(stop, -(-stage // self.spacing) * self.spacing)

    def turn(self, last: int) -> tuple["Doubling", Placed]:
        """Give up snapshots if reversing the stages below `last` gets cheaper."""
        powers = [1 << k for k in range(max(1, len(self.positions)).bit_length())]
        factor = min(powers, key=lambda c: _gaps(self.positions[::c], last, self))
        state, dropped = self._thin(factor)
        return state, Placed(None, dropped)

    def _thin(self, c: int) -> tuple["Doubling", tuple[tuple[int, int], ...]]:
        x, slots, m = self.positions, self.slots, len(self.positions)
        gone = [i for i in range(m) if i % c]
        kept = (*slots[:m:c], *(slots[i] for i in gone), *slots[m:])
        dropped = tuple((x[i], slots[i]) for i in gone)
        return replace(self, positions=x[::c], slots=kept), dropped


Controller: TypeAlias = LeastCost | Doubling


def begin_online(snapshots: int, placement: PlacementName = "least-cost") -> Controller:
    """A controller before its first stage.

    Args:
        snapshots: The most that it holds at once.
        placement: "least-cost", or "doubling" the distance of snapshots.

    Raises:
        PlanError: If there is no such placement, or no snapshot.

    Examples:
        >>> state = begin_online(2)
        >>> for stage in range(5):
        ...     state, placed = state.place(stage)
        >>> state.positions
        (0, 3)
    """
    if placement not in get_args(PlacementName):
        raise PlanError(
            f"`placement={placement!r}` is not known. Pass 'least-cost' or 'doubling'."
        )
    kind = Doubling if placement == "doubling" else LeastCost
    return kind.begin(snapshots)


def reverse_online(state: Controller, length: int, stage: int) -> Iterator[Action]:
    """The actions from the end of the forward sweep to the end.

    The working capsule stands before the last stage of the run of `length` steps, and
    the snapshots are where `state` says.

    Args:
        state: The controller, asked about all stages but the last.
        length: The number of steps that the run turned out to have.
        stage: Steps taped at a time.

    Examples:
        >>> state, _ = begin_online(1).place(0)
        >>> for action in reverse_online(state, 2, 1):
        ...     print(action)
        Reverse(start=1, stop=2)
        Restore(step=0, slot=0, tier='memory')
        Drop(step=0, slot=0, tier='memory')
        Reverse(start=0, stop=1)
    """
    last = max(0, -(-length // stage) - 1)
    state, placed = state.turn(last)
    yield Reverse(last * stage, length)
    for at, slot in placed.dropped:
        yield Drop(at * stage, slot)
    ends = (*state.positions[1:], last)
    stack = [
        Node(at, end, state.snapshots - i, 0, (at * stage, state.slots[i], "memory"))
        for i, (at, end) in enumerate(zip(state.positions, ends, strict=False))
    ]
    tree = Tree(last * stage, stage, state.slots, stage_rule("binomial"))
    yield from walk(tree, stack)


def turn_advances(state: Controller, length: int, stage: int) -> int:
    """The steps that `reverse_online` will advance: sum_i A(x_{i+1} - x_i, s - i).

    Examples:
        >>> state, _ = begin_online(1).place(0)
        >>> turn_advances(state, 4, 1)
        3
    """
    last = max(0, -(-length // stage) - 1)
    turned, _ = state.turn(last)
    return stage * _gaps(turned.positions, last, turned)


def online_actions(
    length: int,
    snapshots: int,
    stage: int = 1,
    placement: PlacementName = "least-cost",
) -> Iterator[Action]:
    """The actions of a run of unknown length that turns out to have `length` steps.

    The driver advances the last stage once more than these actions say, since only
    that tells it that the stage is the last.

    Raises:
        PlanError: If a count is no integer, or cannot be.

    Examples:
        >>> from retape.schedule import online_actions, replay
        >>> replay(online_actions(10, 3), 10, capacity=3).advances
        15
    """
    length, stage = whole("length", length), whole("stage", stage)
    state = begin_online(snapshots, placement)
    at = p = 0
    stop = -(-length // stage) - 1
    while (p := state.next_change(p, stop)) < stop:
        state, placed = state.place(p)
        if (placed.slot is not None or placed.dropped) and at < p * stage:
            yield Advance(at, p * stage)
            at = p * stage
        for step, slot in placed.dropped:
            yield Drop(step * stage, slot)
        if placed.slot is not None:
            yield Store(at, placed.slot)
        p += 1
    last = max(0, -(-length // stage) - 1) * stage
    if at < last:
        yield Advance(at, last)
    yield from reverse_online(state, length, stage)


def online_advances(length: int, snapshots: int, stage: int = 1) -> int:
    """The steps that `online_actions` advances, with nothing made but placements.

    In time in proportion to the snapshots written on the way, not to the steps.

    Args:
        length: The number of steps.
        snapshots: The most snapshots.
        stage: Steps taped at a time.

    Raises:
        PlanError: If a count is no integer, or cannot be.

    Examples:
        >>> online_advances(10, 3)
        15
        >>> online_advances(10**6, 2)
        941928561
    """
    length, stage = whole("length", length), whole("stage", stage)
    state = begin_online(snapshots)
    last, p = max(0, -(-length // stage) - 1), 0
    if last < beta(state.snapshots, 2):
        # As few as if the length were known.
        return stage * optimal_advances(last + 1, state.snapshots)
    while (p := state.next_change(p, last)) < last:
        state, _ = state.place(p)
        p += 1
    return last * stage + turn_advances(state, length, stage)


def _gaps(positions: tuple[int, ...], last: int, state: Controller) -> int:
    ends = (*positions[1:], last)
    gaps = [end - at for at, end in zip(positions, ends, strict=False)]
    return sum(known_advances(gap, state.snapshots - i) for i, gap in enumerate(gaps))

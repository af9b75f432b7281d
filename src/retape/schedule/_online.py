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
from functools import lru_cache
from math import inf
from typing import Literal, NamedTuple, TypeAlias

from .._errors import PlanError
from ._action import Action, Advance, Drop, Reverse, Store
from ._binomial import optimal_advances
from ._split import stage_rule
from ._tree import Node, Tree, walk

PlacementName: TypeAlias = Literal["least-cost", "doubling"]


class Placed(NamedTuple):
    """What the controller decided about a stage.

    Attributes:
        slot: The physical slot for the capsule before the stage; `None`: not kept.
        dropped: The (stage, slot) of snapshots to be dropped first.
    """

    slot: int | None
    dropped: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class LeastCost:
    """Stumm and Walther's placement, then the cheapest eviction.

    For N <= C(s+2, 2) the whole run takes the advances of the offline optimum (Stumm
    and Walther 2010). `phase` k and `base` Q are its state: with i = p - Q,

        i <  s - k:  store p; in phases after the first, evict snapshot s - 1 - i;
        i == s - k:  do not store p; k becomes k + 1, and Q becomes p + 1.

    Phase k = s never comes to an end: from there on (p >= C(s+2, 2) - 1, m = s) the
    stage is kept if that makes the reversal cheaper, supposing that the run ends after
    stage p + 1. With A(L, q) = `optimal_advances`, y = x_0, ..., x_{s-1}, p and

        keep nothing:  K   = sum_{i<s-1} A(y_{i+1} - y_i, s-i) + A(p + 1 - y_{s-1}, 1)
        evict j >= 1:  K_j = sum_{i<j-1} A(y_{i+1} - y_i, s-i)
                             + A(y_{j+1} - y_{j-1}, s-j+1)
                             + sum_{j<i<s} A(y_{i+1} - y_i, s-i+1)

    p is stored, evicting the last j of those with the least K_j, if that K_j < K.

    Example:
        >>> state = LeastCost.begin(2)
        >>> for stage in range(4):
        ...     state, placed = state.place(stage)
        ...     print(state.positions, placed.slot)
        (0,) 0
        (0, 1) 1
        (0, 1) None
        (0, 3) 1
    """

    snapshots: int
    positions: tuple[int, ...]
    slots: tuple[int, ...]
    phase: int = 0
    base: int = 0

    @classmethod
    def begin(cls, snapshots: int) -> "LeastCost":
        """The state before stage 0."""
        return cls(_enough(snapshots), (), tuple(range(snapshots)))

    def place(self, stage: int) -> tuple["LeastCost", Placed]:
        """Decide about the capsule before `stage`, which is not the last."""
        size, i = self.snapshots - self.phase, stage - self.base
        if self.phase == self.snapshots:
            evicted = self._cheapest(stage)
            return (self, _NOTHING) if evicted is None else self._evict(evicted, stage)
        if i == size:
            return replace(self, phase=self.phase + 1, base=stage + 1), _NOTHING
        if self.phase == 0:
            placed = Placed(self.slots[i], ())
            return replace(self, positions=(*self.positions, stage)), placed
        return self._evict(self.snapshots - 1 - i, stage)

    def turn(self, last: int) -> tuple["LeastCost", Placed]:
        """Prepare for reversing the stages below `last`: nothing is given up."""
        return self, _NOTHING

    def _evict(self, j: int, stage: int) -> tuple["LeastCost", Placed]:
        slot, x = self.slots[j], self.positions
        after = replace(
            self,
            positions=(*x[:j], *x[j + 1 :], stage),
            slots=(*self.slots[:j], *self.slots[j + 1 :], slot),
        )
        return after, Placed(slot, ((x[j], slot),))

    def _cheapest(self, stage: int) -> int | None:
        """The j to evict, or `None`. Only its last terms depend on the stage."""
        s, x = self.snapshots, self.positions
        if s == 1:
            return None
        kept, inner, chosen, before = _fixed_costs(s, x)
        keep = kept + _cost(stage + 1 - x[-1], 1)
        inner += _cost(stage - x[-1], 2)
        last = before + _cost(stage - x[-2], 2)
        if min(inner, last) >= keep:
            return None
        return s - 1 if last <= inner else chosen


@lru_cache(maxsize=64)
def _fixed_costs(s: int, x: tuple[int, ...]) -> tuple[int, float, int, int]:
    """The parts of K and K_j that do not depend on the stage asked about.

    Returns:
        The sum in K; the least of those in K_1, ..., K_{s-2} and its last j; and the
        sum in K_{s-1}.
    """
    now = [_cost(x[i + 1] - x[i], s - i) for i in range(s - 1)]
    more = [_cost(x[i + 1] - x[i], s - i + 1) for i in range(s - 1)]
    best, chosen = inf, 0
    before, after = 0, sum(more[1:])
    for j in range(1, s - 1):
        after -= more[j]
        cost = before + _cost(x[j + 1] - x[j - 1], s - j + 1) + after
        if cost <= best:
            best, chosen = cost, j
        before += now[j - 1]
    return sum(now), best, chosen, before


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

    Example:
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

    @classmethod
    def begin(cls, snapshots: int) -> "Doubling":
        """The state before stage 0."""
        return cls(_enough(snapshots), (), tuple(range(snapshots)))

    def place(self, stage: int) -> tuple["Doubling", Placed]:
        """Decide about the capsule before `stage`, which is not the last."""
        if stage % self.spacing:
            return self, _NOTHING
        state, dropped = self, ()
        if len(self.positions) == self.snapshots:
            state, dropped = self._thin(2)
            state = replace(state, spacing=2 * self.spacing)
            if stage % state.spacing:
                return state, Placed(None, dropped)
        if len(state.positions) == state.snapshots:
            return state, _NOTHING  # a single slot, which holds the start state
        slot = state.slots[len(state.positions)]
        after = replace(state, positions=(*state.positions, stage))
        return after, Placed(slot, dropped)

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

_NOTHING = Placed(None, ())


def begin_online(snapshots: int, placement: PlacementName = "least-cost") -> Controller:
    """A controller before its first stage."""
    kind = Doubling if placement == "doubling" else LeastCost
    return kind.begin(snapshots)


def reverse_online(state: Controller, length: int, stage: int) -> Iterator[Action]:
    """The actions from the end of the forward sweep to the end.

    The working capsule stands before the last stage of the run of `length` steps, and
    the snapshots are where `state` says.
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
    """The steps that `reverse_online` will advance: sum_i A(x_{i+1} - x_i, s - i)."""
    last = max(0, -(-length // stage) - 1)
    turned, _ = state.turn(last)
    return stage * _gaps(turned.positions, last, turned)


def online_actions(
    length: int,
    snapshots: int,
    stage: int = 1,
    placement: PlacementName = "least-cost",
) -> Iterator[Action]:
    """What a run of unknown length does that turns out to have `length` steps.

    The driver advances the last stage once more than these actions say, since only
    that tells it that the stage is the last.

    Example:
        >>> from retape.schedule import online_actions, replay
        >>> replay(online_actions(10, 3), 10, capacity=3).advances
        15
    """
    state = begin_online(snapshots, placement)
    at = 0
    for p in range(-(-length // stage) - 1):
        state, placed = state.place(p)
        if (placed.slot is not None or placed.dropped) and at < p * stage:
            yield Advance(at, p * stage)
            at = p * stage
        for step, slot in placed.dropped:
            yield Drop(step * stage, slot)
        if placed.slot is not None:
            yield Store(at, placed.slot)
    last = max(0, -(-length // stage) - 1) * stage
    if at < last:
        yield Advance(at, last)
    yield from reverse_online(state, length, stage)


def _gaps(positions: tuple[int, ...], last: int, state: Controller) -> int:
    ends = (*positions[1:], last)
    gaps = [end - at for at, end in zip(positions, ends, strict=False)]
    return sum(_cost(gap, state.snapshots - i) for i, gap in enumerate(gaps))


@lru_cache(maxsize=1 << 16)
def _cost(stages: int, snapshots: int) -> int:
    return optimal_advances(stages, snapshots)


def _enough(snapshots: int) -> int:
    if snapshots < 1:
        raise PlanError(
            f"`snapshots={snapshots}` cannot be: the start state is always held. Pass "
            "a positive integer."
        )
    return snapshots

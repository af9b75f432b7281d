"""Placing snapshots in memory, of a run whose end is not known: two controllers.

One is for the fewest advances, one for few writes.

`_online` says when a placement is asked, what its state is and how a run turns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple, Self, TypeAlias

from retape._arguments import whole
from retape.schedule._binomial import INTEGERS, Numbers, optimal_advances

Move: TypeAlias = tuple[int, tuple[str, int], tuple[str, int]]


class Placed(NamedTuple):
    """The controller's decision about a stage.

    Attributes:
        slot: The physical slot for the capsule before the stage; `None`: not kept.
        dropped: The (stage, slot) of snapshots to be dropped first.
        tier: The tier of all these slots.
        moved: Snapshots to be moved first: the stage, and the tier and slot before and
            after.
    """

    slot: int | None
    dropped: tuple[tuple[int, int], ...]
    tier: str = "memory"
    moved: tuple[Move, ...] = ()


NOTHING = Placed(None, ())


@dataclass(frozen=True, slots=True)
class InMemory:
    """A controller whose snapshots are all in memory.

    Attributes:
        snapshots: The most that are held at once.
        positions: The stages of those that there are.
        slots: All slots; the first ones hold these, the others are free.
    """

    snapshots: int
    positions: tuple[int, ...]
    slots: tuple[int, ...]

    @property
    def tiers(self) -> tuple[str, ...]:
        """Where the snapshots are."""
        return ("memory",) * len(self.positions)

    @classmethod
    def begin(cls, snapshots: int) -> Self:
        """The state before stage 0."""
        return cls(whole("snapshots", snapshots, 1), (), tuple(range(snapshots)))


FORGOTTEN, PAUSE = -1, -2
"""Answers of `which_leaves`: the capsule is not kept; nor is it, and a phase ends."""


def which_leaves(
    state: Any, stage: Any, cheapest: Any, numbers: Numbers = INTEGERS
) -> Any:
    """Which snapshot leaves for the capsule before `stage`: the rules of `LeastCost`.

    One number says all: a place among those held, or the first behind them if none has
    to leave; `FORGOTTEN`; or `PAUSE`.

    Args:
        state: Its `snapshots`, how many are `held`, its `phase` and `base`.
        stage: The stage, which is not the last.
        cheapest: The eviction of least cost, or `FORGOTTEN`; it counts in phase s.
        numbers: The operations.
    """
    s, i, where = state.snapshots, stage - state.base, numbers.where
    evicted = where(state.phase == s, cheapest, s - 1 - i)
    for at, other in _DEPARTURES.get(s, {}).items():
        evicted = where(stage == at, other, evicted)
    # Nothing is evicted in the first phase: the new snapshot goes behind the others.
    evicted = where(state.phase == 0, state.held, evicted)
    ends = (state.phase < s) & (i == s - state.phase)
    return where(ends, PAUSE, evicted)


@dataclass(frozen=True, slots=True)
class LeastCost(InMemory):
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

    With five snapshots or fewer this looks too near: at a few stages (`departures`)
    another snapshot is evicted, which costs more if the run ends then and less later.

    Examples:
        >>> state = LeastCost.begin(2)
        >>> for stage in range(4):
        ...     state, placed = state.place(stage)
        ...     print(state.positions, placed.slot)
        (0,) 0
        (0, 1) 1
        (0, 1) None
        (0, 3) 1
    """

    phase: int = 0
    base: int = 0

    def place(self, stage: int) -> tuple["LeastCost", Placed]:
        """Decide about the capsule before `stage`, which is not the last."""
        settled = self.phase == self.snapshots
        cheapest = self.cheapest(stage) if settled else FORGOTTEN
        leaves = which_leaves(self, stage, cheapest)
        if leaves == PAUSE:
            return replace(self, phase=self.phase + 1, base=stage + 1), NOTHING
        if leaves == FORGOTTEN:
            return self, NOTHING
        if leaves == self.held:
            placed = Placed(self.slots[leaves], ())
            return replace(self, positions=(*self.positions, stage)), placed
        return self._evict(leaves, stage)

    @property
    def held(self) -> int:
        """How many snapshots there are."""
        return len(self.positions)

    @property
    def departures(self) -> Mapping[int, int]:
        """Evictions that depart from the least cost, by the stage.

        These are the fewest with which the advances stay below 1.05 times the offline
        optimum for every length; with two and three snapshots, where no policy does,
        they are the fewest that stay as low as any policy can, found by a search over
        them; `benchmarks/schedules/online.py` has the one for the limits.

        Examples:
            >>> LeastCost.begin(4).departures
            {23: 1}
        """
        return _DEPARTURES.get(self.snapshots, {})

    def next_change(self, stage: int, stop: int) -> int:
        """The first stage from `stage` on about which `place` may say anything.

        K - K_j grows with every stage by more and more (A(L, 1) by L + 1, the others by
        no more than they grew before and one), so what is worth keeping stays so, and
        the first such stage is found by doubling steps and bisection.
        """
        if self.phase < self.snapshots:
            return stage
        end = min((p for p in self.departures if p >= stage), default=stop)
        end, step = min(end, stop), 1
        if stage >= end or self.cheapest(stage) != FORGOTTEN:
            return stage
        low = stage
        while low + step < end and self.cheapest(low + step) == FORGOTTEN:
            low, step = low + step, 2 * step
        high = min(low + step, end)
        while high - low > 1:
            middle = (low + high) // 2
            if self.cheapest(middle) == FORGOTTEN:
                low = middle
            else:
                high = middle
        return high

    def turn(self, last: int) -> tuple["LeastCost", Placed]:
        """Prepare for reversing the stages below `last`: nothing is given up."""
        return self, NOTHING

    def _evict(self, j: int, stage: int) -> tuple["LeastCost", Placed]:
        slot, x = self.slots[j], self.positions
        after = replace(
            self,
            positions=(*x[:j], *x[j + 1 :], stage),
            slots=(*self.slots[:j], *self.slots[j + 1 :], slot),
        )
        return after, Placed(slot, ((x[j], slot),))

    def cheapest(self, stage: int) -> int:
        """The j of least K_j, or `FORGOTTEN` if K is no more."""
        s, x = self.snapshots, self.positions
        if s == 1:
            return FORGOTTEN
        kept, inner, chosen, before = _fixed_costs(s, x)
        keep = kept + optimal_advances(stage + 1 - x[-1], 1)
        inner += optimal_advances(stage - x[-1], 2)
        last = before + optimal_advances(stage - x[-2], 2)
        if min(inner, last) >= keep:
            return FORGOTTEN
        return s - 1 if last <= inner else chosen


_DEPARTURES: dict[int, dict[int, int]] = {
    2: {10: 1, 15: 1, 21: 1, 28: 1},
    3: {16: 2, 28: 2, 46: 2, 143: 2},
    4: {23: 1},
    5: {47: 4},
}


@lru_cache(maxsize=64)
def _fixed_costs(s: int, x: tuple[int, ...]) -> tuple[int, float, int, int]:
    """The parts of K and K_j that do not depend on the stage asked about.

    Returns:
        The sum in K; the least of those in K_1, ..., K_{s-2} and its last j; and the
        sum in K_{s-1}.
    """
    now = [optimal_advances(x[i + 1] - x[i], s - i) for i in range(s - 1)]
    more = [optimal_advances(x[i + 1] - x[i], s - i + 1) for i in range(s - 1)]
    best, chosen = inf, 0
    before, after = 0, sum(more[1:])
    for j in range(1, s - 1):
        after -= more[j]
        cost = before + optimal_advances(x[j + 1] - x[j - 1], s - j + 1) + after
        if cost <= best:
            best, chosen = cost, j
        before += now[j - 1]
    return sum(now), best, chosen, before


@dataclass(frozen=True, slots=True)
class Doubling(InMemory):
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
    optimum (`benchmarks/schedules/online.py`), and for N <= s + 1 they are the optimum.

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

    spacing: int = 1

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
        factor = min(
            powers,
            key=lambda c: gap_advances(self.positions[::c], last, self.snapshots),
        )
        state, dropped = self._thin(factor)
        return state, Placed(None, dropped)

    def _thin(self, c: int) -> tuple["Doubling", tuple[tuple[int, int], ...]]:
        x, slots, m = self.positions, self.slots, len(self.positions)
        gone = [i for i in range(m) if i % c]
        kept = (*slots[:m:c], *(slots[i] for i in gone), *slots[m:])
        dropped = tuple((x[i], slots[i]) for i in gone)
        return replace(self, positions=x[::c], slots=kept), dropped


def gap_advances(positions: tuple[int, ...], last: int, snapshots: int) -> int:
    """The stages advanced on the way back: sum_i A(x_{i+1} - x_i, s - i)."""
    ends = (*positions[1:], last)
    gaps = [end - at for at, end in zip(positions, ends, strict=False)]
    return sum(optimal_advances(gap, snapshots - i) for i, gap in enumerate(gaps))

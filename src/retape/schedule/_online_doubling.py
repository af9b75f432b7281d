"""Placing snapshots of a run whose end is not known, at distances that double.

`_online` says when a placement is asked, what its state is and how a run turns.
"""

from dataclasses import dataclass, replace

from retape.schedule._binomial import known_advances
from retape.schedule._online_least_cost import NOTHING, Placed
from retape.schedule._whole import whole


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
        return cls(whole("snapshots", snapshots, 1), (), tuple(range(snapshots)))

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
    return sum(known_advances(gap, snapshots - i) for i, gap in enumerate(gaps))

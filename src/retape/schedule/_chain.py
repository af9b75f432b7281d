"""Chains whose steps differ: in cost, in the size of a state, in the size of a tape.

Bytes are counted, not slots. With f_k the cost of step k, w_k the bytes of the state
before it and r_k those of its tape, the cheapest way to reverse the steps a, ..., b - 1
from the state before a, with B bytes free, costs

    V(a, b, B) = 0                      if r_a + ... + r_{b-1} <= B: one stage; else
                 min over a < k < b of  f_a + ... + f_{k-1}
                                        + V(k, b, B - w_a) + V(a, k, B)

In the first of the two parts the state before a is kept, in the second it is read
again: at its last reading it is dropped before its stage is taped. This is optimal
among *persistent* schedules, in which a snapshot is kept until then; dropping a large
one early, to make it again, could be cheaper.

Two other modules solve neighbouring problems, and share no code with this one, since
neither their moves nor their tables are the same:

- `engines/eager/plan/_dynamic_programme` (Rotor) tapes single units on the way forward,
  beside snapshots, and counts bytes that states and tapes have in common once;
- `engines/jaxpr/layers/remat/_choose_segments` has no recursion: each stretch is run
  again once at most, as `jax.checkpoint` does, so its table is (place, bytes kept).

Here a stage of several steps may be taped at once, and a stretch is divided again and
again. The budget covers snapshots and tape, and
not the one or two states that a running step holds itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf, isfinite
from operator import add, index

from retape._bytes import format_bytes
from retape._errors import BudgetError, PlanError
from retape.schedule._action import Action, Advance, Drop, Restore, Reverse, Store
from retape.schedule._check import replay
from retape.schedule._cost import Counts
from retape.schedule._repr_html import schedule_html
from retape.schedule._running_sums import running_sums
from retape.schedule._whole import settle


def _is_number(cost: object) -> bool:
    return not isinstance(cost, str | bytes | bool)


LARGEST = 20_000_000
"""The most (steps^3 * units / 6) that is attempted."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The cheapest persistent schedule of a chain of unequal steps in a byte budget.

    Args:
        forward: Cost of advancing each step.
        states: Bytes of the state before each step.
        tapes: Bytes of the tape of each step.
        budget: Bytes for snapshots and tape together.
        units: Sizes are rounded up to multiples of budget / units, which keeps the
            programme small: the budget is kept, and the cost may be above the optimum,
            by no more than `bound` says. `None` counts single bytes, exactly.

    Examples:
        >>> from retape.schedule import Chain
        >>> chain = Chain([1, 5, 1], states=[2, 9, 2], tapes=[3, 3, 3], budget=5)
        >>> chain.cost()
        7.0
        >>> for action in chain:
        ...     print(action)
        Store(step=0, slot=0, tier='memory')
        Advance(start=0, stop=2)
        Reverse(start=2, stop=3)
        Restore(step=0, slot=0, tier='memory')
        Advance(start=0, stop=1)
        Reverse(start=1, stop=2)
        Restore(step=0, slot=0, tier='memory')
        Drop(step=0, slot=0, tier='memory')
        Reverse(start=0, stop=1)
    """

    forward: Sequence[float]
    states: Sequence[int]
    tapes: Sequence[int]
    budget: int
    units: int | None = None
    _solver: "_Solver" = field(init=False, repr=False, compare=False)

    def _repr_html_(self) -> str:
        """Counts and a picture, for notebooks."""
        return schedule_html(self)

    def __post_init__(self) -> None:
        self._check_entries()
        n = len(self.forward)
        if not n == len(self.states) == len(self.tapes):
            raise PlanError(
                f"`forward` has {n} entries, `states` {len(self.states)} and `tapes` "
                f"{len(self.tapes)}. Pass one of each for every step."
            )
        if min([0, *self.forward, *self.states, *self.tapes]) < 0 or self.budget < 0:
            raise PlanError(
                "`forward`, `states`, `tapes` and `budget` hold a negative number. "
                "Costs and bytes cannot be negative."
            )
        if not all(map(isfinite, self.forward)):
            raise PlanError(
                "`forward` holds a cost that is not finite. Pass the cost of each "
                "step, in any one unit."
            )
        if self.units is not None and self.units < 1:
            raise PlanError(
                f"`units={self.units}` cannot be: the budget is divided into so many "
                "parts. Pass a positive integer, or leave it out for single bytes."
            )
        units = self.budget if self.units is None else self.units
        if n**3 * min(units, sum(self.states) + sum(self.tapes)) > 6 * LARGEST:
            raise PlanError(
                f"a chain of {n} steps with `units={units}` is too large for the "
                "dynamic programme. Pass a smaller `units`, or join steps."
            )
        object.__setattr__(self, "_solver", self._solve())
        if self._solver.value(0, n, self._solver.budget) == inf:
            self._refuse()

    def _check_entries(self) -> None:
        """Make the entries Python's own numbers, also where NumPy's were passed."""
        try:
            forward = [float(cost) for cost in self.forward if _is_number(cost)]
            states = [index(size) for size in self.states]
            tapes = [index(size) for size in self.tapes]
            if len(forward) != len(self.forward):
                raise TypeError
        except (TypeError, ValueError):
            raise PlanError(
                f"`forward={self.forward!r}`, `states={self.states!r}` and "
                f"`tapes={self.tapes!r}` cannot be: pass three sequences, of a number "
                "for each step's cost and of integers for the bytes."
            ) from None
        for name, made in (("forward", forward), ("states", states), ("tapes", tapes)):
            object.__setattr__(self, name, tuple(made))
        settle(self, "budget")
        if self.units is not None:
            settle(self, "units")

    @property
    def exact(self) -> bool:
        """Whether this is the optimum, or a near-optimum within `bound`."""
        return self.units is None or self.units >= self.budget

    def bound(self) -> float:
        """The cost is at most this times the optimum: 1 if exact.

        The programme with all sizes rounded down allows every schedule that keeps the
        budget, and more: its cost is not above the optimum.
        """
        cost, solver = self.cost(), self._solve(up=False)
        least = solver.value(0, len(self.forward), solver.budget)
        if self.exact or cost == least:
            return 1.0
        return cost / least if least else inf

    def _solve(self, up: bool = True) -> "_Solver":
        unit = 1
        if self.units is not None and not self.exact:
            unit = -(-self.budget // self.units)
        more = unit - 1 if up else 0
        states = [(size + more) // unit for size in self.states]
        tapes = [(size + more) // unit for size in self.tapes]
        return _Solver(self.forward, states, tapes, self.budget // unit)

    def _refuse(self) -> None:
        least = least_budget(self.states, self.tapes)
        hint = ""
        if self.budget >= least:
            hint = f" It would do with more than `units={self.units}`."
        raise BudgetError(
            f"`budget={self.budget}` bytes cannot be kept by this chain: the least "
            f"possible is {least} bytes ({format_bytes(least)}).{hint}",
            least,
        )

    def cost(self) -> float:
        """The cost of all advances."""
        solver = self._solver
        return float(solver.value(0, len(self.forward), solver.budget))

    def __iter__(self) -> Iterator[Action]:
        solver, n = self._solver, len(self.forward)
        stack: list[tuple[int, int, int]] = []
        a, b, room, stored = 0, n, solver.budget, False
        while True:
            k = solver.split(a, b, room)
            if k:
                if not stored:
                    yield Store(a, len(stack))
                stack.append((a, k, room))
                yield Advance(a, k)
                a, room, stored = k, room - solver.states[a], False
                continue
            if stored:
                yield Drop(a, len(stack))
            yield Reverse(a, b)
            if not stack:
                return
            a, b, room = stack.pop()
            stored = True
            yield Restore(a, len(stack))

    def counts(self) -> Counts:
        """What a replay counts: a chain is short enough to be gone through."""
        return replay(self, len(self.forward))

    def sweeps(self) -> int:
        """The most times that a step is advanced."""
        advances = (a for a in self if isinstance(a, Advance))
        once = ((a.start, a.stop, 1) for a in advances)
        return max(running_sums(once, len(self.forward)), default=0)

    def peak_bytes(self) -> int:
        """The most bytes of snapshots and tape at once, in the sizes given."""
        held = peak = 0
        for action in self:
            match action:
                case Store(step):
                    held += self.states[step]
                case Drop(step):
                    held -= self.states[step]
                case Reverse(start, stop):
                    peak = max(peak, held + sum(self.tapes[start:stop]))
                case _:
                    continue
            peak = max(peak, held)
        return peak


def least_budget(states: Sequence[int], tapes: Sequence[int]) -> int:
    """The least budget of any persistent schedule.

    The first stage tapes some k steps with nothing held; every later step is taped
    alone, with the state before step 0 held and nothing else.

    Examples:
        >>> least_budget([2, 9, 2], [3, 3, 3])
        5
    """
    if not states:
        return 0
    least, rest = sum(tapes), 0
    taped = least
    for k in range(len(tapes) - 1, 0, -1):
        rest = max(rest, states[0] + tapes[k])
        taped -= tapes[k]
        least = min(least, max(taped, rest))
    return least


class _Solver:
    """V and its splits for every room that can be left, the smallest room first."""

    def __init__(
        self,
        forward: Sequence[float],
        states: Sequence[int],
        tapes: Sequence[int],
        budget: int,
    ) -> None:
        self.states = list(states)
        self.cost = [0.0, *accumulate(forward)]
        self.tape = [0, *accumulate(tapes)]
        self.budget = min(budget, self.tape[-1] + sum(states))
        # values[room][a][b], the same with b before a, and where to split.
        self.values: dict[int, list[list[float]]] = {}
        self.columns: dict[int, list[list[float]]] = {}
        self.splits: dict[int, list[list[int]]] = {}
        for room in sorted(self._rooms()):
            self._fill(room)

    def value(self, a: int, b: int, room: int) -> float:
        """V; infinite if `room` does not suffice."""
        return self.values[room][a][b]

    def split(self, a: int, b: int, room: int) -> int:
        """The k of V, or 0 for a single stage."""
        return self.splits[room][a][b]

    def _rooms(self) -> set[int]:
        rooms = {self.budget}
        for state in self.states:
            rooms |= {room - state for room in rooms if room >= state}
        return rooms

    def _fill(self, room: int) -> None:
        size = len(self.states) + 1
        values = self.values[room] = [[0.0] * size for _ in range(size)]
        columns = self.columns[room] = [[0.0] * size for _ in range(size)]
        splits = self.splits[room] = [[0] * size for _ in range(size)]
        # From the last start: a state of no bytes leaves the same room to its right.
        for a in range(size - 2, -1, -1):
            right = self.columns.get(room - self.states[a])
            row = values[a]
            for b in range(a + 1, size):
                if self.tape[b] - self.tape[a] > room:
                    row[b], splits[a][b] = self._least(a, b, row, right)
                    columns[b][a] = row[b]

    def _least(
        self, a: int, b: int, row: list[float], right: list[list[float]] | None
    ) -> tuple[float, int]:
        """The least over the splits between a and b, and the first that has it."""
        if right is None or b - a == 1:
            return inf, 0
        parts = map(add, right[b][a + 1 : b], row[a + 1 : b])
        sums = list(map(add, self.cost[a + 1 : b], parts))
        least = min(sums)
        return least - self.cost[a], a + 1 + sums.index(least)

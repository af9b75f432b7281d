"""Chains whose steps differ: in cost, in the size of a state, in the size of a tape.

Bytes are counted, not slots. With f_k the cost of step k, w_k the bytes of the state
before it and r_k those of its tape, the cheapest way to reverse the steps a, ..., b - 1
from the state before a, with B bytes free, costs

    V(a, b, B) = 0                      if r_a + ... + r_{b-1} <= B: one stage; else
                 the least of
                 V(a+1, b, B - r_a)     the tape of step a is kept, and the run goes on
                 min over a < k < b of  f_a + ... + f_{k-1}
                                        + V(k, b, B - w_a) + V(a, k, B)

In the first of the last two parts the state before a is kept, in the second it is read
again: at its last reading it is dropped before its step is taped. This is the model of
Rotor (Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova 2019 and 2021), and optimal
among *persistent* schedules, in which a snapshot is kept until then; dropping a large
one early, to make it again, could be cheaper. Where a machine cannot hold a tape while
it goes on (`keep_tapes=False`) the second line is left out.

Two other modules solve neighbouring problems, and share no code with this one, since
neither their costs nor their tables are the same:

- `engines/eager/plan/_dynamic_programme` has the same two choices, but the first sweep
  is the program's own and costs nothing, peaks of running operators count, and bytes
  that states and tapes have in common are counted once: a table by levels of bytes;
- `engines/jaxpr/layers/remat/_choose_segments` has no recursion: each stretch is run
  again once at most, as `jax.checkpoint` does, so its table is (place, bytes kept).

The budget covers snapshots and tapes, and not the one or two states that a running step
holds itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from operator import index

from retape._arguments import settle
from retape._bytes import format_bytes
from retape._errors import BudgetError, PlanError
from retape.schedule._action import Advance, Reverse
from retape.schedule._check import replay
from retape.schedule._cost import Counts
from retape.schedule._in_use import in_use, running_sums
from retape.schedule._offline import Offline
from retape.schedule._policy_stream import Held, Released
from retape.schedule._tables._chain_table import ChainCosts, ChainTable


def _is_number(cost: object) -> bool:
    return not isinstance(cost, str | bytes | bool)


@dataclass(frozen=True, slots=True)
class Chain(Offline):
    """The cheapest persistent schedule of a chain of unequal steps in a byte budget.

    Args:
        forward: Cost of advancing each step.
        states: Bytes of the state before each step.
        tapes: Bytes of the tape of each step.
        budget: Bytes for snapshots and tape together.
        units: Sizes are rounded up to multiples of budget / units, which keeps the
            programme small: the budget is kept, and the cost may be above the optimum,
            by no more than `bound` says. `None` counts single bytes, exactly.
        keep_tapes: Whether a tape may be kept while the run goes on.

    Examples:
        >>> from retape.schedule import Chain
        >>> chain = Chain([1, 5, 1], states=[2, 9, 2], tapes=[3, 2, 3], budget=5)
        >>> chain.cost()
        6.0
        >>> for action in chain:
        ...     print(action)
        Store(step=0, slot=0, tier='memory')
        Advance(start=0, stop=2)
        Reverse(start=2, stop=3)
        Restore(step=0, slot=0, tier='memory')
        Drop(step=0, slot=0, tier='memory')
        Reverse(start=0, stop=2)
    """

    forward: Sequence[float]
    states: Sequence[int]
    tapes: Sequence[int]
    budget: int
    units: int | None = None
    keep_tapes: bool = True
    length: int = field(init=False, repr=False, compare=False)
    stage: int = field(default=1, init=False, repr=False, compare=False)
    _steps: _Steps = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_entries()
        n = len(self.forward)
        object.__setattr__(self, "length", n)
        if not n == len(self.states) == len(self.tapes):
            raise PlanError(
                f"`forward` has {n} entries, `states` {len(self.states)} and `tapes` "
                f"{len(self.tapes)}. Pass one of each for every step."
            )
        if min([0, *self.forward, *self.states, *self.tapes]) < 0:
            raise PlanError(
                "`forward`, `states` and `tapes` hold a negative number. Costs and "
                "bytes cannot be negative."
            )
        if not all(map(isfinite, self.forward)):
            raise PlanError(
                "`forward` holds a cost that is not finite. Pass the cost of each "
                "step, in any one unit."
            )
        object.__setattr__(self, "_steps", _Steps(self._make_table()))
        if self.cost() == inf:
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
                f"`tapes={self.tapes!r}` are not valid: pass three sequences, of a "
                "number for each step's cost and of integers for the bytes."
            ) from None
        for name, made in (("forward", forward), ("states", states), ("tapes", tapes)):
            object.__setattr__(self, name, tuple(made))
        settle(self, budget=0)
        if self.units is not None:
            settle(self, units=1)

    @property
    def exact(self) -> bool:
        """Tell whether this is the optimum, or a near-optimum within `bound`."""
        return self.units is None or self.units >= self.budget

    def bound(self) -> float:
        """The cost is at most this times the optimum: 1 if exact.

        The programme with all sizes rounded down allows every schedule that keeps the
        budget, and more: its cost is not above the optimum.
        """
        if self.exact:
            return 1.0
        cost, least = self.cost(), self._make_table(up=False).best()
        if cost == least:
            return 1.0
        return cost / least if least else inf

    def _make_table(self, up: bool = True) -> ChainTable:
        unit = 1
        if self.units is not None and not self.exact:
            unit = -(-self.budget // self.units)
        more = unit - 1 if up else 0
        states = [(size + more) // unit for size in self.states]
        tapes = [(size + more) // unit for size in self.tapes]
        room = self.budget // unit
        return ChainTable(
            ChainCosts(self.forward, states, tapes, room, self.keep_tapes)
        )

    def _refuse(self) -> None:
        least = least_budget(self.states, self.tapes, keep_tapes=self.keep_tapes)
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
        return self._steps.table.best()

    def _decides(self) -> tuple[_Steps, int]:
        return self._steps, self._steps.table.budget

    def counts(self) -> Counts:
        """The counts of a replay: a chain is short enough to be gone through."""
        return replay(self, self.length)

    @property
    def stages(self) -> int:
        """Of one step or more, as they are taped."""
        return self.counts().reverses

    @property
    def slots(self) -> int:
        """The most that are in use at once: the budget is one of bytes."""
        return self.counts().peak_snapshots

    @property
    def sweeps(self) -> int:
        advances = (a for a in self if isinstance(a, Advance))
        once = ((a.start, a.stop, 1) for a in advances)
        return max(running_sums(once, self.length), default=0)

    def peak_bytes(self, sizes: tuple[int, int] | None = None) -> int:
        """The most bytes of snapshots and tape at once, in the chain's own sizes."""
        del sizes
        peak = 0
        for now in in_use(self, self._state_bytes, self._tape_bytes):
            beside = 0
            if isinstance(now.action, Reverse):
                beside = self._tape_bytes(now.action.start, now.action.stop)
            peak = max(peak, now.total + beside)
        return peak

    def _state_bytes(self, step: int) -> int:
        return self.states[step]

    def _tape_bytes(self, start: int, stop: int) -> int:
        return sum(self.tapes[start:stop])


class _Steps:
    """The policy of a chain: each of its steps is a stage, and room is bytes.

    A decision is made once: looked up, it takes half as long as an action.
    """

    __slots__ = ("_kept", "_read", "table")

    def __init__(self, table: ChainTable) -> None:
        self.table = table
        self._kept: dict[tuple[int, int, int], Held[int]] = {}
        self._read: dict[tuple[int, int, int], Held[int] | Released[int]] = {}

    def keep(self, lo: int, hi: int, room: int) -> Held[int]:
        """The state, or the tape of the first steps, up to one whose state is kept."""
        found = self._kept.get((lo, hi, room))
        if found is None:
            found = self._kept[lo, hi, room] = self._keep(lo, hi, room)
        return found

    def _keep(self, lo: int, hi: int, room: int) -> Held[int]:
        choice, tapes = self.table.choice, self.table.tapes
        taped, split = choice(lo, hi, room)
        if split:
            return Held("memory", False, room - self.table.states[lo], split - lo)
        at = lo
        while taped == 1 < hi - at:
            room -= tapes[at]
            at += 1
            taped, split = choice(at, hi, room)
        whole = taped == hi - at and not split
        return Held("memory", True, room, hi - lo if whole else at - lo)

    def after_read(
        self, lo: int, hi: int, held: Held[int]
    ) -> Held[int] | Released[int]:
        """It stays until its own step is taped."""
        key = lo, hi, held.room
        found = self._read.get(key)
        if found is None:
            room = held.room + self.table.states[lo]
            split = self.table.choice(lo, hi, room).split
            found = Released(room)
            if split:
                found = Held("memory", False, held.room, split - lo)
            self._read[key] = found
        return found

    def is_alone(self, held: Held[int]) -> bool:
        """Not told: a chain is counted by a replay."""
        return False


def least_budget(
    states: Sequence[int], tapes: Sequence[int], *, keep_tapes: bool = True
) -> int:
    """The least budget of any persistent schedule.

    All steps from some k on are taped alone, one after the other, with the state before
    step a held; then a is taped, and in the room beside it the steps up to k are
    reversed in the same way. Where no tape is kept all these are one stage.

    Args:
        states: Bytes of the state before each step.
        tapes: Bytes of the tape of each step.
        keep_tapes: Whether a tape may be kept while the run goes on.

    Examples:
        >>> least_budget([2, 9, 2], [3, 3, 3])
        5
        >>> least_budget([9, 1, 1], [1, 5, 5])
        7
        >>> least_budget([9, 1, 1], [1, 5, 5], keep_tapes=False)
        11
    """
    n, inner = len(tapes), [0] * (len(tapes) + 1)
    for a in range(n - 1 if keep_tapes else 0, -1, -1):
        # `after[k]`: a is taped, and what is between a and k reversed beside it.
        after = [0] * (n + 1)
        for k in range(a + 1, n + 1):
            rest = inner[k] if keep_tapes else sum(tapes[a + 1 : k])
            after[k] = tapes[a] + rest
        inner = [0] * (a + 1) + _best_ends(a, states[a], tapes, after)
    return inner[n] if n else 0


def _best_ends(
    a: int, state: int, tapes: Sequence[int], after: Sequence[int]
) -> list[int]:
    """For every end b > a the least over k of holding the state, or `after[k]`.

    As b grows so does the best k, up to which what comes after it is larger.
    """
    found: list[int] = []
    for b in range(a + 1, len(tapes) + 1):
        alone, least = 0, after[b]
        for k in range(b - 1, a, -1):
            alone = max(alone, state + tapes[k])
            if alone >= least:
                break
            least = min(least, max(alone, after[k]))
        found.append(least)
    return found

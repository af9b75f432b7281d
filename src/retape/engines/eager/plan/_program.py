"""A program that is known, and in each budget the cheapest plan and what it needs.

Everything that is known of a program is here: what was measured of it, the plans, and
what runs that left them have shown. A plan for a budget is one for every larger budget,
too. So of the plans that are known those for less memory are among the choices, and the
cheapest is taken by what it will run, rehearsed: more memory never costs more.

A record shows what a program reads again. It does not show what it holds beyond its
last use, as local variables. A run that has too little room for that reason tells how
much it was, and the next plan has so much less room: everywhere, if it was held to the
end, else only where the program itself runs.

In a store states and tapes take no memory while they wait. A state that is run from is
read back, so it takes memory while its unit is run. What is put away is copied twice,
on its way out and back. A copy has a price in what operators cost, and none is timed:
a plan is the same in each process.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from retape.engines.eager._limits import (
    BACKWARD_NUMBERS,
    SMALL_BUDGET,
    room_for_tensors,
)
from retape.engines.eager.analysis._measured import Measured
from retape.engines.eager.analysis._unit_sizes import Unit
from retape.engines.eager.plan._dynamic_programme import LARGEST, Optimum
from retape.engines.eager.plan._expected_plan import ExpectedPlan
from retape.engines.eager.plan._way_back import rehearse
from retape.engines.eager.trace._report import Descent, Tally

_MOST_BUDGETS = 64
# A program that has left its plan so often has none any more.
_MOST_FAILURES = 8
# Looking at an entry of the table takes a core as long as 250 bytes. Finding a plan may
# take about three runs, with coarser levels if need be, but not less than the fewest.
_ENTRY = 80
FEWEST_ENTRIES = 6_000_000
K = TypeVar("K")
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """Values by key, of which those used last are kept.

    Args:
        most: How many are kept.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __reduce__(self) -> Any:
        return Recent, (self.most,), None, None, iter(self.items())

    def use(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made if there is none."""
        if key not in self:
            self[key] = make()
            if len(self) > self.most:
                self.popitem(last=False)
        self.move_to_end(key)
        return self[key]


class KnownPlan(NamedTuple):
    """A plan for a program, and what it costs.

    Attributes:
        cost: Of what is run again and of copies.
        descents: The plan.
        again: Of what is run again alone.
    """

    cost: int
    descents: tuple[Descent, ...]
    again: int


@dataclass(slots=True)
class InBudget:
    """A program in one budget.

    Plans are left where a program does something else than was measured or holds more,
    of which a little is made up for by tapes that are let go.
    That may show in the backward, when runs of other programs, or of the same, have
    begun since. So each run that follows a plan tells here itself that it left it, and
    what it tells is looked at before the next run.

    Attributes:
        choice: The cheapest plan that is known.
        searched: The entries of the table that it was looked for in.
        tally: Of its first run, by rules; `None` if it had a plan.
        state: `"new"`; there is a record of a run that may be planned (`"recorded"`); a
            plan was looked for, and runs follow it (`"led"`) or do `"without"`.
        failures: How often a plan was left.
        short: Bytes held beyond what was measured, all the time.
        overhang: Bytes held beyond their last use while the program runs.
        left: Plans that were left since the last look.
    """

    choice: KnownPlan | None = None
    searched: int = 0
    tally: Tally | None = None
    state: Literal["new", "recorded", "led", "without"] = "new"
    failures: int = 0
    short: int = 0
    overhang: int = 0
    left: list[ExpectedPlan] = field(default_factory=list[ExpectedPlan])

    @property
    def fails(self) -> bool:
        """No plan has held."""
        return self.failures >= _MOST_FAILURES

    @property
    def studied(self) -> bool:
        """A plan was looked for, for runs to follow."""
        return self.state in ("led", "without")

    def give_up(self) -> None:
        """No plan is worth while, for now."""
        self.choice, self.searched, self.state = None, 0, "without"

    def watch(self, plan: ExpectedPlan) -> None:
        """Hear of it if a run leaves its plan, has left it or had too little room."""
        plan.on_leaving = self.left.append
        if plan.broken or plan.excess:
            self.left.append(plan)

    def leave_more_room(self, plan: ExpectedPlan) -> None:
        """A plan was left. If the program did not hold more, none would fare better."""
        self.failures += 1 if plan.excess else _MOST_FAILURES
        if plan.overhang:
            more = max(plan.excess, plan.overhang - self.overhang)
            self.overhang += max(more, self.overhang // 4)
        else:
            self.short += max(plan.excess, self.short)


@dataclass(slots=True)
class Program:
    """A program, told by what it does.

    Attributes:
        mark: Of what it does.
        price: Of a byte on its way into the store of its runs; 0 without a store.
        measured: A run of it, cut into units; `None` if there is none.
        estimated: If it was measured before it ran, the budget in which nothing has to
            be let go: in less its first run has a plan, too. Else 0.
        budgets: By bytes, what is known of it there.
    """

    mark: int
    price: int = 0
    measured: Measured | None = None
    estimated: int = 0
    budgets: Recent[int, InBudget] = field(
        default_factory=lambda: Recent[int, InBudget](_MOST_BUDGETS)
    )

    def within(self, memory: int) -> InBudget:
        """What is known of it in a budget."""
        return self.budgets.use(memory, InBudget)

    def choose(self, memory: int, entries: int) -> KnownPlan | None:
        """The cheapest plan in a budget, of those for it and for less."""
        known, measured = self.within(memory), self.measured
        assert measured is not None
        if not (known.short or known.overhang) and known.searched >= entries:
            return known.choice
        smaller = (each for size, each in self.budgets.items() if size <= memory)
        found = [each.choice for each in smaller if each.choice is not None]
        for price in {self.price, 0}:
            descents = _best(known, measured, memory, entries, price)
            if descents is not None:
                again = rehearse(measured, descents)
                cost = again + copy_cost(measured, descents, self.price)
                found.append(KnownPlan(cost, descents, again))
        choice = min(found, key=lambda each: each.cost, default=None)
        if choice is not None:
            known.choice, known.searched = choice, entries
            for size, each in self.budgets.items():
                if size > memory and each.choice and each.choice.cost > choice.cost:
                    each.choice = choice
        return choice

    def study(self, memory: int) -> None:
        """Look for a plan that runs in a budget are to follow.

        In next to no room units are coarse: rules may do better.
        """
        known, measured = self.within(memory), self.measured
        assert measured is not None
        entries = min(LARGEST, max(FEWEST_ENTRIES, measured.cost // _ENTRY))
        choice = self.choose(memory, entries)
        again = known.tally.cost(measured.costs) if known.tally else 0
        if choice is not None and choice.again < (again or float("inf")):
            known.state = "led"
        else:
            known.give_up()

    def settle(self, memory: int) -> None:
        """Learn from the plans that were left since the last time."""
        known = self.within(memory)
        while known.left:
            plan = known.left.pop(0)
            # Several runs may have followed the same plan at once: one lesson will do.
            if known.choice is not None and plan.made is known.choice.descents:
                known.leave_more_room(plan)
                self._drop(plan, memory)
                if not known.fails:
                    self.study(memory)

    def _drop(self, plan: ExpectedPlan, memory: int) -> None:
        """A plan did not hold in a budget: no smaller one has it either."""
        for size, each in self.budgets.items():
            choice = each.choice
            if size <= memory and choice and choice.descents is plan.made:
                each.give_up()
                each.state = "without" if size == memory else "recorded"

    def plan(self, memory: int) -> ExpectedPlan | None:
        """The plan, for one run: a `ExpectedPlan` notes what its run does."""
        known, measured = self.within(memory), self.measured
        if measured is None or known.choice is None or known.state != "led":
            return None
        outside = measured.outside_bytes + known.short
        descents = known.choice.descents
        return ExpectedPlan(descents, measured=measured, outside=outside)

    def forget_without_plans(self) -> None:
        """What was measured would stay beside runs by rules."""
        plans = any(each.choice is not None for each in self.budgets.values())
        if not plans and not self.estimated:
            self.measured = None


def _best(
    known: InBudget, measured: Measured, memory: int, entries: int, price: int
) -> tuple[Descent, ...] | None:
    """The best way to reverse what was measured in a budget, if there is one.

    The table, of megabytes, is gone before the next is made.
    """
    beside = room_for_tensors(memory, measured.record_in(memory))
    room = beside - measured.kept_bytes - BACKWARD_NUMBERS - known.short
    # The table is made where tensors will be, beside the record.
    table = SMALL_BUDGET if memory <= SMALL_BUDGET else beside
    if price:
        units, widths, *copies = units_in_store(measured, price)
    else:
        units, widths, copies = measured.units, measured.widths(), [(), ()]
    room, overhang = max(0, room), known.overhang
    states, tapes = copies
    best = Optimum(units, widths, room, entries, overhang, table, states, tapes)
    return tuple(best.descents()) if best.cost < float("inf") else None


# For each byte and way: it is read and written, as by an operator that does no more.
# How fast a disk or a bus is nobody knows beforehand, and a plan looks at no clock.
_COPIED = 2


class InStore(NamedTuple):
    """The input of the dynamic programme.

    Attributes:
        units: Their states are there while they run, and not while they wait.
        widths: What waiting states take: nothing.
        copies: For each unit, the cost of a copy of the state before it.
        tape_copies: For each unit, that of putting its tape away and reading it.
    """

    units: Sequence[Unit]
    widths: Sequence[Sequence[int]]
    copies: Sequence[float]
    tape_copies: Sequence[float]


def units_in_store(measured: Measured, price: int) -> InStore:
    """The units of a run, if every state is put away as soon as it is complete."""
    states = [[measured.nbytes[slot] for slot in state] for state in measured.states]
    units = [_with_state(*each) for each in zip(measured.units, states, strict=False)]
    return InStore(
        units,
        [[0] * len(states)] * len(states),
        [price * sum(state) for state in states[:-1]],
        [2 * price * unit.more_bytes for unit in measured.units],
    )


def copy_cost(measured: Measured, descents: Sequence[Descent], price: int) -> int:
    """About what the copies of a plan cost, each state read once."""
    nbytes, states, own = measured.nbytes, measured.states, descents[0]
    stored = [
        slot for each in descents for unit in each.stores for slot in states[unit]
    ]
    away = [slot for unit in own.away for slot in measured.tapes[unit]]
    return 2 * price * sum(nbytes[slot] for slot in (*stored, *away))


def _with_state(unit: Unit, state: Sequence[int]) -> Unit:
    """A unit in which the state before it takes room whenever something runs.

    Of what comes and goes there is a second copy while it is on its way.
    """
    nbytes = sum(state) + max(state, default=0)
    return unit._replace(
        hold_bytes=0,
        advance_peak=unit.advance_peak + nbytes,
        tape_peak=unit.tape_peak + nbytes,
        reverse_peak=unit.reverse_peak + nbytes,
    )


def price_of(store: Any) -> int:
    """What a byte costs on its way into a store or back; 0 without a store."""
    return 0 if store is None else _COPIED


def is_unlimited(store: Any) -> bool:
    """Whether a store takes all that a plan may put into it.

    A tiered store passes on to its last part what it has no room for before.
    """
    inner = getattr(store, "inner", None) or getattr(store, "disk", None)
    if inner is not None:
        return is_unlimited(inner)
    limits = (getattr(store, name, None) for name in ("capacity", "capacity_bytes"))
    return all(each is None for each in limits)

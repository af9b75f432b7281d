"""Programs known in this process, in whatever budget they were measured.

A plan for a budget is one for every larger budget, too. So of the plans that are known
for a program those for less memory are among the choices, and the cheapest is taken by
what it will run, rehearsed: more memory never costs more.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from retape.engines.eager.analysis._measure import measure
from retape.engines.eager.analysis._measured import ForwardEnd, Measured
from retape.engines.eager.plan._fit import Fit
from retape.engines.eager.plan._in_store import copy_cost
from retape.engines.eager.plan._rehearse import rehearse
from retape.engines.eager.trace._run import Run
from retape.engines.eager.trace._schedule import Descent

_MOST_KNOWN = 16
# Each is a whole record, without values.
_MOST_WAITING = 2
_MOST_CHOICES = 64
# Few units leave the table fine levels, many cut finely. With a hundred, and so 70
# levels, a Mamba of two blocks ran 0.57 again in a budget in which 39 units run 0.15.
# With 25 beside them a plan was at most 0.01 of a forward cheaper (a gated scan), and
# where what is measured takes room of the budget dearer by up to 0.02 (a GPT, a U-Net).
UNITS = 50
LOCK = threading.RLock()
"""Held by whoever looks at what is known of programs, in any thread."""
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
class Known:
    """A program, cut into units.

    Attributes:
        measured: Its units.
        mark: Of what it does.
        estimated: If it was measured before it ran, the budget in which nothing has to
            be let go: in less its first run has a plan, too. Else 0.
        price: Of a byte on its way into the store of its runs; 0 without a store.
        choices: By budget, the cheapest plan.
        searched: By budget, the entries of the table that it was looked for in.
    """

    measured: Measured
    mark: int = 0
    estimated: int = 0
    price: int = 0
    choices: dict[int, KnownPlan] = field(default_factory=dict[int, KnownPlan])
    searched: dict[int, int] = field(default_factory=dict[int, int])

    def choose(self, memory: int, fit: Fit, entries: int) -> KnownPlan | None:
        """The cheapest plan in a budget, of those for it and for less."""
        with LOCK:
            return self._choose(memory, fit, entries)

    def _choose(self, memory: int, fit: Fit, entries: int) -> KnownPlan | None:
        if fit == Fit() and self.searched.get(memory, 0) >= entries:
            return self.choices[memory]
        found = [each for size, each in self.choices.items() if size <= memory]
        for price in {self.price, 0}:
            best = _descents(fit, self.measured, memory, entries, price)
            if best is not None:
                again = rehearse(self.measured, best)
                cost = again + copy_cost(self.measured, best, self.price)
                found.append(KnownPlan(cost, best, again))
        choice = min(found, key=lambda each: each.cost, default=None)
        if choice is not None:
            self.choices[memory], self.searched[memory] = choice, entries
            for size, each in self.choices.items():
                if size > memory and each.cost > choice.cost:
                    self.choices[size] = choice
            if len(self.choices) > _MOST_CHOICES:
                self.give_up(next(iter(self.choices)))
        return choice

    def drop(self, descents: Sequence[Descent]) -> None:
        """A plan did not hold: no budget takes it any more."""
        for memory, each in list(self.choices.items()):
            if each.descents is descents:
                self.give_up(memory)

    def give_up(self, memory: int) -> None:
        """No plan for a budget is worth while, for now."""
        self.choices.pop(memory, None)
        self.searched.pop(memory, None)


def _descents(
    fit: Fit, measured: Measured, memory: int, entries: int, price: int
) -> tuple[Descent, ...] | None:
    """The best plan, if one fits; its table, of megabytes, is gone before the next."""
    best = fit.best(measured, memory, entries, price)
    return tuple(best.descents()) if best.cost < float("inf") else None


class Programs:
    """What is known of the programs of a process, by their marks.

    A record that is to be measured waits for the end of its backward: nothing that
    the measurement and the plan take is beside what the backward needs then.
    """

    def __init__(self, price: int) -> None:
        self._price = price
        self._known: Recent[int, Known] = Recent(_MOST_KNOWN)
        self._waiting: Recent[int, tuple[Run, ForwardEnd]] = Recent(_MOST_WAITING)

    def __contains__(self, mark: int) -> bool:
        return mark in self._known

    def note(self, mark: int, run: Run) -> None:
        """Let a recorded run wait; if one does that is not reversed, measure it now."""
        if mark not in self._waiting:
            self._waiting.use(mark, lambda: (run, ForwardEnd.of(run)))
        elif self._waiting[mark][0].living:
            self.add(mark, measure(run, UNITS))

    def get(self, mark: int) -> Known | None:
        """A program, if it is known, or has waited and is reversed."""
        run, end = self._waiting.get(mark, (None, None))
        if mark not in self._known and run is not None and not run.living:
            self.add(mark, measure(run, UNITS, end))
        found = self._known.get(mark)
        if found is not None:
            self._known.move_to_end(mark)
        return found

    def add(self, mark: int, measured: Measured) -> Known:
        """A program that has been measured."""
        self._waiting.pop(mark, None)
        return self._known.use(mark, lambda: Known(measured, mark, price=self._price))

    def expect(self, known: Known) -> None:
        """A program that was estimated may come at any time."""
        with LOCK:
            self._known.pop(known.mark, None)
            self._known.use(known.mark, lambda: known)

    def expected(self, memory: int) -> list[Known]:
        """The estimated programs that need a plan in a budget, the latest last."""
        return [each for each in self._known.values() if memory < each.estimated]

    def drop_without_plans(self, known: Known) -> None:
        """Forget a program for which no budget has had a plan."""
        if not known.choices and not known.estimated:
            self._known.pop(known.mark, None)

    def clear(self) -> None:
        """Forget all programs."""
        self._known.clear()
        self._waiting.clear()


programs = Programs(0)
# By the price of a byte on its way into their store.
_with_stores: dict[int, Programs] = {0: programs}


def programs_for(price: int) -> Programs:
    """What is known of programs with a store of a price, or without one."""
    return _with_stores.setdefault(price, Programs(price))


def forget_programs() -> None:
    """Forget all programs."""
    for each in _with_stores.values():
        each.clear()

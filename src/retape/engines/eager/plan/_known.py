"""Programs known in this process, in whatever budget they were measured.

A plan for a budget is one for every larger budget, too. So of the plans that are known
for a program those for less memory are among the choices, and the cheapest is taken by
what it will run, rehearsed: more memory never costs more.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from retape.engines.eager.analysis._measure import ForwardEnd, Measured
from retape.engines.eager.analysis._units import Descent
from retape.engines.eager.plan._fit import Fit
from retape.engines.eager.plan._lru import Recent
from retape.engines.eager.plan._rehearse import rehearse
from retape.engines.eager.trace._run import Run

_MOST_KNOWN = 16
# Each is a whole record, without values.
_MOST_WAITING = 2
_MOST_CHOICES = 64


class KnownPlan(NamedTuple):
    """A plan for one of the partitions of a program, and what it costs."""

    cost: int
    measured: Measured
    descents: tuple[Descent, ...]


@dataclass(slots=True)
class Known:
    """A program, cut into coarser and finer units.

    Attributes:
        measures: For each partition, its units.
        choices: By budget, the cheapest plan.
    """

    measures: Sequence[Measured]
    choices: dict[int, KnownPlan] = field(default_factory=dict[int, KnownPlan])

    def choose(self, memory: int, fit: Fit, entries: int) -> KnownPlan | None:
        """The cheapest plan in a budget, of those for it and for less."""
        if memory in self.choices and fit == Fit():
            return self.choices[memory]
        found = [each for size, each in self.choices.items() if size <= memory]
        for measured in self.measures:
            descents = _descents(fit, measured, memory, entries)
            if descents is not None:
                found.append(
                    KnownPlan(rehearse(measured, descents), measured, descents)
                )
        choice = min(found, key=lambda each: each.cost, default=None)
        if choice is not None:
            self.choices[memory] = choice
            for size, each in self.choices.items():
                if size > memory and each.cost > choice.cost:
                    self.choices[size] = choice
            if len(self.choices) > _MOST_CHOICES:
                del self.choices[next(iter(self.choices))]
        return choice

    def drop(self, descents: Sequence[Descent]) -> None:
        """A plan did not hold: no budget takes it any more."""
        left = [k for k, each in self.choices.items() if each.descents is descents]
        for memory in left:
            del self.choices[memory]


def _descents(
    fit: Fit, measured: Measured, memory: int, entries: int
) -> tuple[Descent, ...] | None:
    """The best plan, if one fits; its table, of megabytes, is gone before the next."""
    best = fit.best(measured, memory, entries)
    return tuple(best.descents()) if best.cost < float("inf") else None


class Programs:
    """What is known of the programs of a process, by their marks.

    A record that is to be measured waits for the end of its backward: nothing that
    the measurement and the plan take is beside what the backward needs then.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: Recent[int, Known] = Recent(_MOST_KNOWN)
        self._waiting: Recent[int, tuple[Run, ForwardEnd]] = Recent(_MOST_WAITING)

    def wait(self, mark: int, run: Run) -> bool:
        """Let a recorded run wait; `False` if one does that is not yet reversed."""
        with self._lock:
            if mark in self._waiting:
                return not self._waiting[mark][0].living
            self._waiting.use(mark, lambda: (run, ForwardEnd.of(run)))
            return True

    def take(self, mark: int) -> tuple[Run, ForwardEnd] | None:
        """A run of a program that has waited, and is reversed."""
        with self._lock:
            found = self._waiting.get(mark)
            if found is None or found[0].living:
                return None
            return self._waiting.pop(mark)

    def get(self, mark: int) -> Known | None:
        """A program, if it is known."""
        with self._lock:
            found = self._known.get(mark)
            if found is not None:
                self._known.move_to_end(mark)
            return found

    def add(self, mark: int, measures: Sequence[Measured]) -> Known:
        """A program that has been measured."""
        with self._lock:
            self._waiting.pop(mark, None)
            return self._known.use(mark, lambda: Known(tuple(measures)))

    def drop_without_plans(self, mark: int) -> None:
        """Forget a program for which no budget has had a plan."""
        with self._lock:
            known = self._known.get(mark)
            if known is not None and not known.choices:
                del self._known[mark]

    def clear(self) -> None:
        """Forget all programs."""
        with self._lock:
            self._known.clear()
            self._waiting.clear()


programs = Programs()

"""What a run keeps, what it runs again and from where: descents, and how they read.

Beside them stand the counts of a run, which are its report.

The rules of a first run and the plan of a later one say it in this one form, as the
actions of a user do, and `print(report.plan)` shows it.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise, starmap
from typing import Any, Literal, NamedTuple

from retape._bytes import format_bytes
from retape.engines.eager._record_bytes import RecordSize, deep_bytes

PlanState = Literal["none", "followed", "left"]

_MOST_ROWS, _MOST_NAMES = 24, 3


@dataclass(frozen=True, slots=True)
class Descent:
    """One run from a held state: what it stores and tapes on its way.

    Attributes:
        start: The unit whose state it begins at.
        stop: The unit before whose state it ends.
        stores: Units, after `start`, whose states it stores.
        taped: Units that it tapes.
        parent: The descent that stored its start; -1 for the run itself.
        tiers: Where each of `stores` goes, for a run with a store; empty for memory.
        away: Of the units that it tapes, those whose tapes go into the store.
    """

    start: int
    stop: int
    stores: tuple[int, ...]
    taped: tuple[int, ...]
    parent: int
    tiers: tuple[str, ...] = ()
    away: tuple[int, ...] = ()

    def tier_of(self, unit: int) -> str:
        """Where the state of a unit that it stores goes."""
        return self.tiers[self.stores.index(unit)] if self.tiers else "memory"

    def _moved(self, by: int, first: int) -> "Descent":
        """The same of units with other numbers, those before the first left out."""
        taped = tuple(unit + by for unit in self.taped if unit + by >= first)
        return Descent(max(first, self.start + by), self.stop + by, (), taped, 0)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The descents over the units of one run, the program's own run first.

    Attributes:
        descents: Each unit is taped by one of them.
        cuts: The operators at which units begin, and their number.
        saved: For each unit, the bytes that autograd saves in it.
        why: Who decided, in a sentence.
        away: Of the units that the program's own run tapes, those whose tapes are in a
            store.
    """

    descents: Sequence[Descent]
    cuts: Sequence[int]
    saved: Sequence[int]
    why: str
    away: Collection[int] = ()

    def before(self, later: "Schedule", saved: Callable[[int, int], int]) -> "Schedule":
        """These descents, and behind their last cut what another schedule says.

        Args:
            later: The other one.
            saved: Tells the bytes that autograd saves in steps from one on to another.

        Examples:
            >>> rules = chain_of([0, 20, 30], [4000, 2000], [1], "By rules.")
            >>> own, again = Descent(0, 2, (1,), (), -1), Descent(0, 2, (), (0, 1), 0)
            >>> plan = Schedule([own, again], [0, 10, 20], [], "By a plan.")
            >>> found = plan.before(rules, lambda first, stop: stop - first)
            >>> found.cuts, found.saved, [each.taped for each in found.descents]
            ([0, 10, 20, 30], [10, 10, 10], [(2,), (0, 1)])
        """
        end, count = self.cuts[-1], len(self.cuts) - 1
        passed = bisect_right(later.cuts, end) - 1
        cuts = [*self.cuts, *later.cuts[passed + 1 :]]
        own, *again = self.descents
        kept, *others = (each._moved(count - passed, count) for each in later.descents)
        own = replace(own, stop=len(cuts) - 1, taped=kept.taped)
        made = (own, *again, *(each for each in others if each.taped))
        return Schedule(made, cuts, [*starmap(saved, pairwise(cuts))], later.why)

    def parts(
        self, again: Mapping[int, int], regions: Sequence["Region"] = ()
    ) -> "tuple[Part, ...]":
        """Neighbouring units that one descent tapes, as they follow one another.

        Args:
            again: How often each operator has been run again.
            regions: Those of the program.
        """
        owner = {
            unit: number
            for number, each in enumerate(self.descents)
            for unit in each.taped
        }
        counts = [0] * (len(self.cuts) - 1)
        for unit in range(len(counts)):
            steps = range(self.cuts[unit], self.cuts[unit + 1])
            counts[unit] = sum(again.get(step, 0) for step in steps)
        begun = sorted(regions, key=lambda each: (each.first, -each.stop))
        away = set(self.away).intersection(self.descents[0].taped)

        def decided(unit: int) -> tuple[int, bool]:
            # Where nothing is saved there is nothing to let go.
            return owner[unit] if self.saved[unit] else 0, unit in away

        found: list[Part] = []
        for (number, stored), group in groupby(range(len(counts)), key=decided):
            units, each = list(group), self.descents[number]
            first, stop = self.cuts[units[0]], self.cuts[units[-1] + 1]
            found.append(
                Part(
                    first,
                    stop,
                    sum(self.saved[unit] for unit in units),
                    None if number == 0 else self.cuts[each.start],
                    "stored" if stored else "run again" if number else "kept",
                    sum(counts[unit] for unit in units),
                    tuple(each.name for each in begun if first <= each.first < stop),
                )
            )
        return tuple(found)


class Part(NamedTuple):
    """Some operators of a run, and what becomes of what autograd saves in them.

    Attributes:
        first: The first operator, counted from 0.
        stop: The operator after the last one.
        saved_bytes: What autograd saves in them.
        start: The operator from which they are run again for it; `None` if they are
            not.
        state: `"kept"` in memory, put into the store (`"stored"`), or let go and
            `"run again"`.
        recomputed: How many operators of them have been run again so far, each as often
            as it was.
        regions: The regions that begin in it, those that are in others first.
    """

    first: int
    stop: int
    saved_bytes: int
    start: int | None
    state: Literal["kept", "stored", "run again"]
    recomputed: int
    regions: tuple[str, ...] = ()


class Region(NamedTuple):
    """A region of a program that has ended.

    Attributes:
        name: Its path, the names of the regions around it first.
        first, stop: The operators in it.
    """

    name: str
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run keeps and what it runs again; `print` shows it as a table.

    Attributes:
        state: Whether the run went by a plan: `"none"` had one, it is `"followed"` so
            far, or it was `"left"` and the rest went by rules, since the program did
            something else or held more.
        parts: In the order of the program; none before the end of the block, and none
            with `mode="loop"`.
        why: Who decided, and by what.

    Examples:
        >>> first = Part(0, 20, 4096, 0, "run again", 0)
        >>> second = Part(20, 30, 2048, None, "kept", 0)
        >>> print(RunPlan("none", (first, second), "Rules decided."))
        Rules decided.
        operators      saved for the backward    what becomes of it           run again
        0 to 19        4.0 KiB                   let go, run again from 0             0
        20 to 29       2.0 KiB                   kept                                 0
    """

    state: PlanState
    parts: tuple[Part, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        if not self.parts:
            return self.why
        named = "regions" if any(each.regions for each in self.parts) else ""
        head = *_HEAD, named
        rows = [head, *(_row(each) for each in self.parts[:_MOST_ROWS])]
        table = [
            f"{a:<15}{b:<26}{c:<27}{d:>11}  {e}".rstrip() for a, b, c, d, e in rows
        ]
        more = len(self.parts) - _MOST_ROWS
        if more > 0:
            table.append(f"and {more} more parts, in `parts`")
        return "\n".join([self.why, *table])


_HEAD = "operators", "saved for the backward", "what becomes of it", "run again"


def _row(part: Part) -> tuple[str, str, str, str, str]:
    what = {
        "kept": "kept",
        "stored": "put into the store",
        "run again": f"let go, run again from {part.start}",
    }
    if not part.saved_bytes:
        what["kept"] = "there is nothing to keep"
    saved = format_bytes(part.saved_bytes)
    where = f"{part.first} to {part.stop - 1}"
    outer = [
        name for name in part.regions if name.rpartition("/")[0] not in part.regions
    ]
    names = ", ".join(name.rpartition("/")[2] for name in outer[:_MOST_NAMES])
    names += ", ..." if len(outer) > _MOST_NAMES else ""
    return where, saved, what[part.state], str(part.recomputed), names


def chain_of(
    cuts: Sequence[int], saved: Sequence[int], kept: Collection[int], why: str
) -> Schedule:
    """A schedule by which each unit is run again from its own beginning.

    Args:
        cuts: Where the units begin, and the end.
        saved: For each of them, what autograd saves.
        kept: The units that are kept.
        why: Who decided.

    Examples:
        >>> made = chain_of([0, 20, 30], [4000, 2000], [1], "By the rules.")
        >>> [(each.start, each.taped) for each in made.descents]
        [(0, (1,)), (0, (0,))]
    """
    count = len(cuts) - 1
    again = [unit for unit in range(count) if unit not in kept]
    stores = tuple(unit for unit in again if unit)
    own = Descent(0, count, stores, tuple(sorted(kept)), -1)
    later = [Descent(unit, unit + 1, (), (unit,), 0) for unit in reversed(again)]
    return Schedule((own, *later), cuts, saved, why)


_NO_TABLE = (
    "There is no table of operators: the block has not ended yet, or it was run with "
    "`mode='loop'`, which notes calls."
)


@dataclass(slots=True)
class Tally:
    """Counts of one run, while it goes on. `again` has how often each step ran again.

    `record` is the size of its record, `plan` the plan that it began with, `schedule`
    tells what is kept and what is run again, `regions` has those with names, `sharding`
    is what FSDP2 has gathered beside the budget.
    """

    steps: int = 0
    saved: int = 0
    recomputed: int = 0
    stages: int = 0
    planted: int = 0
    snapshots: int = 0
    thinned: int = 0
    peak: int = 0
    sharding: int = 0
    record: RecordSize | None = None
    plan: Any = None
    schedule: Callable[[], Schedule] | None = None
    regions: list[Region] = field(default_factory=list[Region])
    again: Counter[int] = field(default_factory=Counter[int])

    def cost(self, costs: Sequence[int]) -> int:
        """The cost of all that was run again, from those of the steps."""
        return sum(count * costs[index] for index, count in self.again.items())

    def _bookkeeping(self) -> int | None:
        if self.record is None:
            return None
        measured = None if self.plan is None else self.plan.measured
        return self.record.bare + self.record.notes + deep_bytes(measured)

    def _plan(self) -> RunPlan:
        left = self.plan is not None and self.plan.broken
        state = "none" if self.plan is None else "left" if left else "followed"
        if self.schedule is None:
            return RunPlan(state, (), _NO_TABLE)
        schedule = self.schedule()
        return RunPlan(state, schedule.parts(self.again, self.regions), schedule.why)

    def report(self) -> "EagerReport":
        """The counts so far, frozen."""
        return EagerReport(
            steps=self.steps,
            saved=self.saved,
            recomputed=self.recomputed,
            stages=self.stages,
            planted=self.planted,
            snapshots=self.snapshots,
            thinned=self.thinned,
            peak_bytes=self.peak,
            bookkeeping_bytes=self._bookkeeping(),
            plan=self._plan(),
            sharding_bytes=self.sharding,
        )


@dataclass(frozen=True, slots=True)
class EagerReport:
    """Counts of a run under `recompute` so far.

    Attributes:
        steps: Operators recorded.
        saved: Tensors that autograd saved for its backward.
        recomputed: Operators run again.
        stages: Times that a part of the run was recomputed for its backward.
        planted: Snapshots stored during the backward.
        snapshots: Snapshots placed during the forward.
        thinned: Of those, how many were given up again.
        peak_bytes: The most bytes alive at once in storages that the run made, those
            recomputed included; gradients that stay are not among them.
            Where nothing had to be let go, a budget in which nothing has to be.
        bookkeeping_bytes: About the bytes that the record took when the forward was
            over, and the plan that was followed: objects of the process's own heap,
            which a budget of more than a megabyte covers where tensors are on the host.
            `None` before that, and with `mode="loop"`.
        plan: What is kept and what is run again, and why; `print(report.plan)` is a
            table. Its `state` says whether the run went by a plan.
        sharding_bytes: Bytes of the whole parameters that modules of FSDP2 gathered in
            the forward, all together, if they get a gradient. A budget has no room for
            them, nor for their gradients and buffers: FSDP2 holds those of a few
            modules at once.
    """

    steps: int
    saved: int
    recomputed: int
    stages: int
    planted: int
    snapshots: int
    thinned: int
    peak_bytes: int
    bookkeeping_bytes: int | None = field(default=None, compare=False)
    plan: RunPlan = field(default_factory=lambda: RunPlan("none"))
    sharding_bytes: int = 0

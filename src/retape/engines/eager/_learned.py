"""What the runs of a program leave for the runs after them.

A training loop does the same again and again. The first run in a budget knows nothing
and is kept by rules of thumb. If values had to be let go and the second run does the
same, the schedule of least cost for what it did is found, and followed from the third
run on. Costs are read off shapes, sizes off the record, and nothing off a clock: a
program has the same plan in each process. Programs are told apart by what they do. A
plan is taken up where the first unit of a run is that of the plan, and left where the
run does something else or holds more. One that is run once is not analysed.
"""

import threading
from collections import OrderedDict

from ._fit import Fit
from ._keep import Keeper
from ._measure import Measured, measure, whole_mark
from ._optimum import LARGEST
from ._planned import Plan, PlannedKeeper
from ._report import Tally
from ._run import Run
from ._units import Descent

_MOST_BUDGETS = 64
_MOST_PROGRAMS = 16
# A program that has left its plan so often has none any more.
_MOST_FAILURES = 8
# Where more programs take turns than are remembered, each is new again and again. After
# the first plans one is looked for in so many runs: at three runs each, one in 20.
_RUNS_PER_SEARCH = 64
# Looking at an entry of the table takes a core as long as 250 bytes. Finding a plan may
# take about three runs, with coarser levels if need be, but not less than the fewest.
_ENTRY = 80
_FEWEST_ENTRIES = 6_000_000


class Program:
    """What is known about one program in one budget.

    Attributes:
        mark: Of what it does.
        tally: Of its first run, by rules of thumb.
        measured: Its second run; `None` if it has not been run twice.
        descents: The plan, if there is one that is better than the rules of thumb.
        fit: What plans have to leave.
        failures: How often the plan was left.
    """

    def __init__(self, mark: int, tally: Tally) -> None:
        self.mark, self.tally = mark, tally
        self.measured: Measured | None = None
        self.descents: tuple[Descent, ...] = ()
        self.fit = Fit()
        self.failures = 0

    def find_plan(self, memory: int) -> None:
        """Find the best descents in what there is room for."""
        measured = self.measured
        assert measured is not None
        self.descents = ()
        if self.failures >= _MOST_FAILURES:
            return
        entries = min(LARGEST, max(_FEWEST_ENTRIES, measured.cost // _ENTRY))
        best = self.fit.best(measured, memory, entries)
        # In next to no room units are coarse: the rules of thumb may do better.
        again = self.tally.recomputed / max(1, self.tally.steps) * measured.cost
        if best.cost < (again or float("inf")):
            self.descents = tuple(best.descents())

    def plan(self) -> Plan:
        """The plan, for one run."""
        assert self.measured is not None
        return self.fit.plan(self.descents, self.measured)


class Lessons:
    """What the runs within one budget have shown.

    Attributes:
        programs: By mark, the latest last.
    """

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self.programs: OrderedDict[int, Program] = OrderedDict()
        self._followers: dict[int, int] = {}
        self._latest: int | None = None
        self._in_use: tuple[Program, Plan] | None = None
        self._runs = self._searches = 0

    def plan(self) -> Plan | None:
        """The plan that a new run may turn out to follow, the others beside it."""
        with self._lock:
            self._settle()
            programs = [each for each in self.programs.values() if each.descents]
            programs.sort(key=_end_of_first_unit)
            latest = next(reversed(self.programs), None)
            expected = self._followers.get(self._latest or 0, latest)
            programs.sort(key=lambda each: each.mark != expected)
            plans = [each.plan() for each in programs]
        if not plans:
            return None
        plans[0].others = plans[1:]
        return plans[0]

    def learn(self, run: Run, keeper: Keeper) -> None:
        """Take the lesson of a run whose graph is there and whose backward is not."""
        plan = keeper.plan if isinstance(keeper, PlannedKeeper) else None
        led = plan is not None and (not plan.broken or plan.excess > 0)
        if not run.living or not (led or keeper.relieved):
            return
        mark = whole_mark(run)
        with self._lock:
            self._settle()
            self._runs += 1
            program = self.programs.pop(mark, None)
            if program is None:
                program = Program(mark, run.tally)
            elif program.measured is None and self._may_search():
                program.measured = measure(run)
                program.find_plan(self._memory)
            self._note(program)
            ours = plan is not None and plan.measured is program.measured
            self._in_use = (program, plan) if plan is not None and ours else None

    def _may_search(self) -> bool:
        """Whether the runs so far are worth one more search for a plan."""
        late = self._searches - _MOST_PROGRAMS + 1
        allowed = self._runs > _RUNS_PER_SEARCH * late
        self._searches += allowed
        return allowed

    def _note(self, program: Program) -> None:
        """Remember which program came, and after which."""
        self.programs[program.mark] = program
        if len(self.programs) > _MOST_PROGRAMS:
            self.programs.popitem(last=False)
        if len(self._followers) > 8 * _MOST_PROGRAMS:
            self._followers.clear()
        if self._latest is not None:
            self._followers[self._latest] = program.mark
        self._latest = program.mark

    def _settle(self) -> None:
        """Make a plan that was left, perhaps in the backward, with less room."""
        if self._in_use is None:
            return
        program, plan = self._in_use
        if plan.broken:
            self._in_use = None
            # Where it did not hold more, another plan would fare no better.
            program.failures += 1 if plan.excess else _MOST_FAILURES
            program.fit.learn(plan)
            program.find_plan(self._memory)


def _end_of_first_unit(program: Program) -> int:
    return program.measured.cuts[1] if program.measured is not None else 0


_lessons: OrderedDict[int, Lessons] = OrderedDict()
_lessons_lock = threading.Lock()


def lessons_for(memory: int) -> Lessons:
    """What is known about runs within a budget."""
    with _lessons_lock:
        found = _lessons.get(memory)
        if found is None:
            found = _lessons[memory] = Lessons(memory)
            if len(_lessons) > _MOST_BUDGETS:
                _lessons.popitem(last=False)
        else:
            _lessons.move_to_end(memory)
        return found


def forget_lessons() -> None:
    """Forget all plans."""
    with _lessons_lock:
        _lessons.clear()

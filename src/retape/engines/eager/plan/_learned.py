"""Lessons: measurements that the runs of a program leave for later ones.

A training loop does the same again and again. The first run in a budget knows nothing
and is kept by rules of thumb. If values had to be let go, the schedule of least cost
for what it did is found before the second run begins, when nothing of the first is left
but its record, and followed from there on. A program that was estimated has its record
before it runs, and a plan in its first run. Costs are read off shapes, sizes off the
record, and nothing off a clock: a program has the same plan in each process. Programs
are told apart by what they do. A plan is taken up where the first unit of a run is that
of the plan, and left where the run does something else or holds more.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence

from retape.engines.eager.analysis._measured import Measured, whole_mark
from retape.engines.eager.keep._keeper import Keeper
from retape.engines.eager.plan._dynamic_programme import LARGEST
from retape.engines.eager.plan._fit import Fit
from retape.engines.eager.plan._known import (
    LOCK,
    Known,
    Recent,
    forget_programs,
    programs,
    programs_for,
)
from retape.engines.eager.plan._planned_forward import PlannedKeeper, UnitSchedule
from retape.engines.eager.trace._report import Tally
from retape.engines.eager.trace._run import Run
from retape.engines.eager.trace._schedule import Descent

_MOST_BUDGETS = 64
_MOST_PROGRAMS = 16
# Programs that were estimated and are planned before a run, each in as long as three.
_MOST_EXPECTED = 4
# What comes next is read off so many runs before it: a turn may be half as long.
_MOST_PAST = 32
# A program that has left its plan so often has none any more.
_MOST_FAILURES = 8
# Where more programs take turns than are remembered, or none comes twice, each is new
# again and again. After the first plans one is looked for in so many runs: at three
# runs each, one in 20.
_RUNS_PER_SEARCH = 64
# Looking at an entry of the table takes a core as long as 250 bytes. Finding a plan may
# take about three runs, with coarser levels if need be, but not less than the fewest.
_ENTRY = 80
FEWEST_ENTRIES = 6_000_000


class LearnedProgram:
    """A program in one budget, told by what it does, and the best plan known.

    Plans are left where a program does something else than was measured or holds more.
    That may show in the backward, when runs of other programs, or of the same, have
    begun since. So each run that follows a plan tells its program itself that it left
    it, and what it tells is looked at before the next run.

    Attributes:
        memory: The budget, in bytes.
        mark: Of what it does.
        tally: Of its first run, by rules of thumb; `None` if it had a plan.
        measured: A run of it; `None` if there is none yet.
        descents: The plan, if there is one that is worth while.
        fit: What plans have to leave.
        failures: How often the plan was left.
        recorded: There is a record of a run, and it may be planned.
        studied: A plan has been looked for.
    """

    def __init__(self, memory: int, mark: int, tally: Tally | None = None) -> None:
        self.memory, self.mark, self.tally = memory, mark, tally
        self.measured: Measured | None = None
        self.descents: tuple[Descent, ...] = ()
        self.fit = Fit()
        self.failures = 0
        self.recorded = self.studied = False
        self._known: Known | None = None
        self._left: list[UnitSchedule] = []

    def learn(self, known: Known) -> None:
        """Look for a plan for what runs have shown."""
        self.studied = True
        self._known, self.measured = known, known.measured
        self._find_better_plan(known)
        if not self.descents:  # what was measured would stay beside runs by rules
            self._known = self.measured = None
            known.give_up(self.memory)

    def plan(self) -> UnitSchedule | None:
        """The plan, for one run: a cheaper one, if a smaller budget has found it."""
        choice = self._known and self._known.choices.get(self.memory)
        if choice and self.descents:
            self.descents = choice.descents
        if self.measured is None or not self.descents:
            return None
        return self.fit.plan(self.descents, self.measured)

    def watch(self, plan: UnitSchedule) -> None:
        """Hear of it if a run leaves its plan, or has left it."""
        plan.on_leaving = self._left.append
        if plan.broken:
            self._left.append(plan)

    def settle(self) -> None:
        """Learn from the plans that were left since the last time."""
        while self._left:
            plan = self._left.pop(0)
            # Several runs may have followed the same plan at once: one lesson will do.
            if self.descents and plan.descents is self.descents:
                self._fail(plan)

    def _fail(self, plan: UnitSchedule) -> None:
        """Plan with less room. If it did not hold more, no plan would fare better."""
        self.failures += 1 if plan.excess else _MOST_FAILURES
        self.fit.learn(plan)
        self.descents = ()
        if self._known is not None:
            self._known.drop(plan.descents)
            if self.failures < _MOST_FAILURES:
                self._find_better_plan(self._known)

    def _find_better_plan(self, known: Known) -> None:
        """In next to no room units are coarse: the rules of thumb may do better."""
        choice = known.choose(self.memory, self.fit, entries_for(known))
        again = self.tally.cost(known.measured.costs) if self.tally else 0
        if choice is not None and choice.again < (again or float("inf")):
            self.descents = choice.descents


def entries_for(known: Known) -> int:
    """Entries of a table that may be looked at for a plan of a program."""
    return min(LARGEST, max(FEWEST_ENTRIES, known.measured.cost // _ENTRY))


def what_follows(past: Sequence[int]) -> int | None:
    """What comes next: what came each time after the shortest stretch that tells.

    Programs may begin alike, and be told apart by their turn only: two steps of one
    and one of another, say, again and again. Where no stretch at the end was followed
    by the same twice or more, it is what came after the latest program the last time.
    """
    found, places = None, list(range(1, len(past)))
    for length in range(1, len(past)):
        here = past[-length]
        places = [k for k in places if k >= length and past[k - length] == here]
        if length == 1 and places:
            found = past[places[-1]]
        if len(places) < 2:
            break
        if len({past[k] for k in places}) == 1:
            return past[places[-1]]
    return found


class Lessons:
    """Measurements of the runs within one budget.

    Attributes:
        programs: By mark, the latest last.
    """

    def __init__(self, memory: int, price: int = 0) -> None:
        self._memory = memory
        self._known = programs_for(price)
        self.programs: OrderedDict[int, LearnedProgram] = OrderedDict()
        self._past: deque[int] = deque(maxlen=_MOST_PAST)
        self._runs = self._searches = 0
        self._expected: set[int] = set()

    def plan(self) -> UnitSchedule | None:
        """The plan that a new run may turn out to follow, the others beside it."""
        with LOCK:
            self._settle()
            self._study()
            self._expect_programs()
            planned = [each for each in self.programs.values() if each.descents]
            planned.sort(key=_end_of_first_unit)
            latest = next(reversed(self.programs), None)
            found = what_follows(list(self._past))
            expected = latest if found is None else found
            planned.sort(key=lambda each: each.mark != expected)
            plans = [plan for each in planned if (plan := each.plan()) is not None]
        if not plans:
            return None
        plans[0].others = plans[1:]
        return plans[0]

    def learn(self, run: Run, keeper: Keeper) -> None:
        """Take the lesson of a run whose graph is there and whose backward is not."""
        plan = keeper.plan if isinstance(keeper, PlannedKeeper) else None
        led = plan is not None and (not plan.broken or plan.excess > 0)
        asked = run.sections or run.reversed_inside  # of plans, nothing can come
        if not run.living or asked or not (led or keeper.relieved):
            return
        mark = whole_mark(run)
        with LOCK:
            self._runs += 1
            program = self.programs.pop(mark, None)
            if program is None:
                program = LearnedProgram(self._memory, mark, run.tally)
            if not program.studied:
                program.recorded = self._may_plan(mark, run)
            self._note(program)
            if plan is not None and plan.measured is program.measured:
                program.watch(plan)

    def give_up_plan(self, run: Run) -> bool:
        """Have no plan any more for a program; whether it has done without in here.

        One that was estimated has not, if its first run has a plan.
        """
        with LOCK:
            program = self.programs.get(whole_mark(run))
            if program is None:
                return False
            program.descents, program.failures = (), _MOST_FAILURES
            return program.tally is not None

    def _may_plan(self, mark: int, run: Run) -> bool:
        """Let the record wait until it is reversed; what is not then is read now."""
        if mark not in self._known:
            if not self._may_search():
                return False
            self._known.note(mark, run)
        return True

    def _study(self) -> None:
        """Find plans for the programs that were recorded, and are reversed."""
        for program in self.programs.values():
            if program.recorded and not program.studied:
                known = self._known.get(program.mark)
                if known is not None:
                    program.learn(known)
                    self._known.drop_without_plans(known)

    def _expect_programs(self) -> None:
        """Find plans for programs that were estimated, before any of their runs."""
        for known in programs.expected(self._memory)[-_MOST_EXPECTED:]:
            if known.mark not in self._expected:
                self._expected.add(known.mark)
                if known.mark not in self.programs:
                    program = LearnedProgram(self._memory, known.mark)
                    program.learn(self._known.add(known.mark, known.measured))
                    self._remember(program)

    def _may_search(self) -> bool:
        """Tell whether the runs so far are worth one more search for a plan."""
        late = self._searches - _MOST_PROGRAMS + 1
        allowed = self._runs > _RUNS_PER_SEARCH * late
        self._searches += allowed
        return allowed

    def _note(self, program: LearnedProgram) -> None:
        """Remember which program came, and after which."""
        self._remember(program)
        self._past.append(program.mark)

    def _remember(self, program: LearnedProgram) -> None:
        self.programs[program.mark] = program
        if len(self.programs) > _MOST_PROGRAMS:
            self.programs.popitem(last=False)

    def _settle(self) -> None:
        """Make plans that were left, perhaps in the backward, with less room."""
        for program in self.programs.values():
            program.settle()


def _end_of_first_unit(program: LearnedProgram) -> int:
    return program.measured.cuts[1] if program.measured is not None else 0


_lessons: Recent[tuple[int, int], Lessons] = Recent(_MOST_BUDGETS)


def lessons_for(memory: int, price: int = 0) -> Lessons:
    """The lessons of runs within a budget, and with a store of a price per byte."""
    with LOCK:
        return _lessons.use((memory, price), lambda: Lessons(memory, price))


def forget_lessons() -> None:
    """Forget all plans."""
    with LOCK:
        _lessons.clear()
        forget_programs()

"""The book of plans: what runs of a program leave for later ones.

A training loop does the same again and again. The first run in a budget knows nothing
and is kept by rules of thumb. If values had to be let go, the schedule of least cost
for what it did is found before the second run begins, when nothing of the first is left
but its record, and followed from there on. A program that was estimated has its record
before it runs, and a plan in its first run. Costs are read off shapes, sizes off the
record, and nothing off a clock: a program has the same plan in each process. Programs
are told apart by what they do. A plan is taken up where the first unit of a run is that
of the plan, and left where the run does something else or holds more.
"""

import threading
from collections import deque
from collections.abc import Sequence

from retape.engines.eager.analysis._measured import ForwardEnd, measure, whole_mark
from retape.engines.eager.plan._expected_plan import ExpectedPlan
from retape.engines.eager.plan._program import KnownPlan, Program, Recent
from retape.engines.eager.trace._run import Run

_MOST_LEDGERS = 64
_MOST_PROGRAMS = 16
# Each is a whole record, without values.
_MOST_WAITING = 2
# Programs that were estimated and are planned before a run, each in as long as three.
_MOST_EXPECTED = 4
# What comes next is read off so many runs before it: a turn may be half as long.
_MOST_PAST = 32
# Where more programs take turns than are remembered, or none comes twice, each is new
# again and again. After the first plans one is looked for in so many runs: at three
# runs each, one in 20.
_RUNS_PER_SEARCH = 64
# Few units leave the table fine levels, many cut finely. With a hundred, and so 70
# levels, a Mamba of two blocks ran 0.57 again in a budget in which 39 units run 0.15.
# With 25 beside them a plan was at most 0.01 of a forward cheaper (a gated scan), and
# where what is measured takes room of the budget dearer by up to 0.02 (a GPT, a U-Net).
UNITS = 50
_LOCK = threading.RLock()  # of whoever looks into the book, in any thread


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


class Book:
    """What is known of programs, by their marks, and runs that wait to be measured.

    A record that is to be measured waits for the end of its backward: nothing that
    the measurement and the plan take is beside what the backward needs then.
    """

    def __init__(self, price: int) -> None:
        self.programs: Recent[int, Program] = Recent(_MOST_PROGRAMS)
        self._price = price
        self._waiting: Recent[int, tuple[Run, ForwardEnd]] = Recent(_MOST_WAITING)

    def program(self, mark: int) -> Program:
        """What is known of a program: nothing yet, if it is new."""
        return self.programs.use(mark, lambda: Program(mark, self._price))

    def note(self, program: Program, run: Run) -> None:
        """Let a recorded run wait; if one does that is not reversed, measure it now."""
        mark = program.mark
        if mark not in self._waiting:
            self._waiting.use(mark, lambda: (run, ForwardEnd.of(run)))
        elif self._waiting[mark][0].living:
            del self._waiting[mark]
            program.measured = measure(run, UNITS)

    def look_at(self, program: Program) -> None:
        """Measure what has waited, if it is reversed."""
        run, end = self._waiting.get(program.mark, (None, None))
        if run is not None and not run.living:
            del self._waiting[program.mark]
            program.measured = program.measured or measure(run, UNITS, end)

    def clear(self) -> None:
        """Forget all programs."""
        self.programs.clear()
        self._waiting.clear()


class Ledger:
    """Runs within one budget, and the turn that programs take in it."""

    def __init__(self, memory: int, price: int = 0) -> None:
        self._memory, self._book = memory, _book_for(price)
        self._past: deque[int] = deque(maxlen=_MOST_PAST)
        self._latest: int | None = None
        self._runs = self._searches = 0

    def plan(self) -> ExpectedPlan | None:
        """The plan that a new run may turn out to follow, the others beside it."""
        with _LOCK:
            self._expect_programs()
            found = what_follows(list(self._past))
            expected = self._latest if found is None else found
            plans = list[tuple[bool, int, ExpectedPlan]]()
            for program in list(self._book.programs.values()):
                if self._memory in program.budgets:
                    plan = self._plan_of(program)
                    if plan is not None:
                        end = plan.measured.cuts[1]
                        plans.append((program.mark != expected, end, plan))
            if expected is not None and self._does_without(expected):
                return None
        plans.sort(key=lambda each: each[:2])
        if not plans:
            return None
        first, *others = [plan for *_, plan in plans]
        first.others = others
        return first

    def _does_without(self, mark: int) -> bool:
        """Whether rules are to lead a program: the plan of another would be left."""
        program = self._book.programs.get(mark)
        known = program and program.budgets.get(self._memory)
        return known is not None and known.state == "without"

    def _plan_of(self, program: Program) -> ExpectedPlan | None:
        """The plan of a program: found now, if a run was recorded and is reversed.

        One that was left, perhaps in the backward, is made again with less room.
        """
        known = program.within(self._memory)
        program.settle(self._memory)
        if known.state == "recorded":
            self._book.look_at(program)
            if program.measured is not None:
                program.study(self._memory)
                program.forget_without_plans()
        return program.plan(self._memory)

    def learn(self, run: Run, relieved: bool) -> None:
        """Take the lesson of a run whose graph is there and whose backward is not.

        Args:
            run: The run.
            relieved: Values were let go.
        """
        plan: ExpectedPlan | None = run.tally.plan
        led = plan is not None and (not plan.broken or plan.excess > 0)
        asked = run.sections or run.reversed_inside  # of plans, nothing can come
        if not run.living or asked or not (led or relieved):
            return
        mark = whole_mark(run)
        with _LOCK:
            self._runs += 1
            program = self._book.program(mark)
            new = self._memory not in program.budgets
            known = program.within(self._memory)
            # One that has left a plan says nothing of what rules cost.
            if new and plan is None:
                known.tally = run.tally
            if not known.studied:
                may = self._may_plan(program, run)
                known.state = "recorded" if may else "new"
            self._past.append(mark)
            self._latest = mark
            if plan is not None and plan.measured is program.measured:
                known.watch(plan)

    def give_up_plan(self, run: Run) -> bool:
        """Have no plan any more for a program; whether it has done without in here.

        One that was estimated has not, if its first run has a plan.
        """
        with _LOCK:
            program = self._book.programs.get(whole_mark(run))
            known = program and program.budgets.get(self._memory)
            if known is None:
                return False
            known.give_up()
            return known.tally is not None

    def _may_plan(self, program: Program, run: Run) -> bool:
        """Let the record wait until it is reversed; what is not then is read now."""
        if program.measured is None:
            late = self._searches - _MOST_PROGRAMS + 1
            if self._runs <= _RUNS_PER_SEARCH * late:
                return False
            self._searches += 1
            self._book.note(program, run)
        return True

    def _expect_programs(self) -> None:
        """Find plans for programs that were estimated, before any of their runs."""
        estimated = _books[0].programs.values()
        due = [each for each in estimated if self._memory < each.estimated]
        for each in due[-_MOST_EXPECTED:]:
            known = self._book.programs.get(each.mark)
            program = known or self._book.program(each.mark)
            program.measured = program.measured or each.measured
            if not program.within(self._memory).studied:
                program.study(self._memory)
                self._latest = each.mark


_books: dict[int, Book] = {0: Book(0)}  # by the price of a byte on its way into a store
_ledgers: Recent[tuple[int, int], Ledger] = Recent(_MOST_LEDGERS)


def _book_for(price: int) -> Book:
    return _books.setdefault(price, Book(price))


def ledger_for(memory: int, price: int = 0) -> Ledger:
    """The runs within a budget, and with a store of a price per byte."""
    with _LOCK:
        return _ledgers.use((memory, price), lambda: Ledger(memory, price))


def expect(program: Program) -> None:
    """A program that was estimated may come at any time.

    What runs of it have shown stays.
    """
    with _LOCK:
        programs = _books[0].programs
        known = programs.pop(program.mark, program)
        if known.measured is None:
            known.measured = program.measured
        known.estimated = program.estimated
        programs.use(program.mark, lambda: known)


def choose(program: Program, memory: int, entries: int) -> KnownPlan | None:
    """The cheapest plan of a program in a budget."""
    with _LOCK:
        return program.choose(memory, entries)


def forget_plans() -> None:
    """Forget all programs and their plans."""
    with _LOCK:
        _ledgers.clear()
        for each in _books.values():
            each.clear()

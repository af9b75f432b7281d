"""How near to the optimum are plans of `CompilerBudget`: OR-Tools is the referee.

    pip install ortools
    python -m benchmarks.torch.referee [--seconds 60] [NAME ...]

The same recomputation problem is planned by us and given to CP-SAT, in the form of
retention intervals (Bartan et al. 2023, "Moccasin"): each value of the forward may be
made twice, and each time is held for an interval; the order of the program is kept; at
no time is more held than the budget. Ours are plans that a compiler can carry out: a
value is saved from the forward to its last use, or made again at its first use in the
backward. The referee may also let a saved value go and make it again. It begins with
our plan, so what it finds is no worse, and it gives a bound below which no plan lies.

Graphs are those of small models, as PyTorch traces them.

Budgets are 30, 50, 70 and 90 % of what plain holds. Overhead is the cost of what runs
again over that of one forward and backward.
"""

import time
from typing import Any

import torch
from benchmarks.harness import Table, asked, missing
from benchmarks.torch.account import account, backward_order, closure
from benchmarks.torch.graphs import MODELS, Problem, traced

from retape.engines.eager.compiled._count import PlanCounter, ancestors
from retape.engines.eager.compiled._front import front
from retape.engines.eager.compiled._joint import Joint

SHARES = (0.3, 0.5, 0.7, 0.9)


class Referee:
    """The recomputation problem of a graph in a budget, as CP-SAT sees it.

    Args:
        joint: The graph.
        budget: Bytes.
        saved: What our plan saves, to begin with; `None` if there is none.

    A time is the number of a stage, one for each node of the forward and of the
    backward, and within it the number of a node: what runs again in a stage does so
    before the stage's own node, in the order of the program.
    """

    def __init__(self, joint: Joint, budget: int, saved: frozenset[int] | None) -> None:
        from ortools.sat.python import cp_model

        self.joint, self.model = joint, cp_model.CpModel()
        everything = closure(joint, joint.needed, joint.needed)
        self.early = _forward(joint)
        late = [k for k in backward_order(joint, everything) if joint.backward[k]]
        self.size = len(joint.nodes) + 1
        nodes = [*self.early, *late]
        self.stage = {k: place for place, k in enumerate(nodes)}
        self.end = len(nodes) * self.size + self.size
        self.late = late
        self.makers = {s: k for k in nodes for s in joint.made[k] if joint.nbytes[s]}
        again = closure(joint, joint.needed, ()).again
        self.again = [k for k in again if joint.made[k] and k in self.stage]
        # What the backward alone asks for need not be made in the forward.
        sure = set(ancestors(joint, joint.outputs))
        self.maybe = {
            k: self.model.new_bool_var("") for k in self.early if k not in sure
        }
        self._runs()
        self._hold()
        self._read()
        self.model.add_cumulative(self.intervals, self.demands, budget)
        cost = [joint.cost[k] * self.active[k] for k in self.again]
        self.model.minimize(sum(cost))
        if saved is not None:
            self._begin_with(saved)

    def solve(self, seconds: float) -> tuple[float | None, float]:
        """The cost of the best plan found, and the bound below which none lies."""
        from ortools.sat.python import cp_model

        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = 2
        status = solver.solve(self.model)
        found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        if status == cp_model.INFEASIBLE:
            return None, float("inf")
        return solver.objective_value if found else None, solver.best_objective_bound

    def at(self, node: int) -> int:
        """The time at which a node's first run is."""
        return self.stage[node] * self.size + self.size - 1

    def _runs(self) -> None:
        """The second run of each node of the forward, in some stage of the backward."""
        low, high = len(self.early), len(self.stage) - 1
        self.active = {k: self.model.new_bool_var(f"a{k}") for k in self.again}
        self.place = {k: self.model.new_int_var(low, high, f"p{k}") for k in self.again}
        self.start = {k: self.place[k] * self.size + k for k in self.again}

    def _hold(self) -> None:
        """How long each value is held, each time that it is made."""
        joint, model = self.joint, self.model
        self.intervals, self.demands = list[Any](), list[int]()
        self.first: dict[int, Any] = {}
        self.second: dict[int, Any] = {}
        stay = {
            s for k in (*joint.outputs, *joint.gradients) for s in joint.storages[k]
        }
        for s, maker in self.makers.items():
            uses = [k for k in self.stage if s in joint.touched[k]]
            late = self._is_late(maker)
            sure = [k for k in uses if late or not self._is_late(k)]
            low = max(
                self.at(k) for k in [maker, *sure] if k not in self.maybe or k == maker
            )
            low = self.end - 1 if s in stay else low
            until = (
                low
                if self._is_late(maker)
                else model.new_int_var(low, self.end - 1, "")
            )
            self.first[s] = until
            self._interval(
                self.at(maker), until, joint.nbytes[s], self.maybe.get(maker)
            )
            if maker in self.active and s not in stay:
                until = model.new_int_var(0, self.end - 1, "")
                self.second[s] = until
                start = self.start[maker]
                self._interval(start, until, joint.nbytes[s], self.active[maker])
        for k in self.stage:
            if joint.workspace[k]:
                size, first = joint.workspace[k], self.maybe.get(k)
                self._interval(self.at(k), self.at(k), size, first)
                if k in self.active:
                    start = self.start[k]
                    self._interval(start, start, size, self.active[k])

    def _interval(self, start: Any, last: Any, size: int, active: Any) -> None:
        model, length = self.model, self.model.new_int_var(1, self.end, "")
        if active is None:
            interval = model.new_interval_var(start, length, last + 1, "")
        else:
            interval = model.new_optional_interval_var(
                start, length, last + 1, active, ""
            )
        self.intervals.append(interval)
        self.demands.append(size)

    def _read(self) -> None:
        """Each run finds what it reads: held from the first time, or the second."""
        for k, first in self.maybe.items():
            for s in self._reads(k):
                self._held_at(s, self.at(k), [first])
        for k in self.late:
            for s in self._reads(k):
                self._there(s, self.at(k), None)
        for k in self.again:
            for s in self._reads(k):
                self._there(s, self.start[k], self.active[k])

    def _there(self, s: int, when: Any, active: Any) -> None:
        model, on = self.model, [] if active is None else [active]
        if s not in self.second:
            self._held_at(s, when, on)
            return
        one = model.new_bool_var("")
        self._held_at(s, when, [one, *on])
        maker = self.makers[s]
        other = [one.negated(), *on]
        model.add(self.second[s] >= when).only_enforce_if(other)
        model.add(self.start[maker] < when).only_enforce_if(other)
        model.add_implication(one.negated(), self.active[maker]) if not on else (
            model.add_bool_or([one, self.active[maker]]).only_enforce_if(on)
        )

    def _held_at(self, s: int, when: Any, on: list[Any]) -> None:
        """A value's first time lasts so long, if it is made in the forward at all."""
        self.model.add(self.first[s] >= when).only_enforce_if(on)
        if (first := self.maybe.get(self.makers[s])) is not None:
            self.model.add_bool_and([first]).only_enforce_if(on)

    def _begin_with(self, saved: frozenset[int]) -> None:
        """Tell the solver our plan."""
        plan = closure(self.joint, self.joint.needed, saved)
        stage = -1
        places: dict[int, int] = {}
        pending = list[int]()
        for k in backward_order(self.joint, plan):
            if self.joint.backward[k] and k in self.stage:
                stage = self.stage[k]
                places |= dict.fromkeys(pending, stage)
                pending = []
            else:
                pending.append(k)
        for k in self.again:
            self.model.add_hint(self.active[k], k in places)
            if k in places:
                self.model.add_hint(self.place[k], places[k])

    def _is_late(self, node: int) -> bool:
        return self.joint.backward[node]

    def _reads(self, node: int) -> list[int]:
        """Storages that a node reads, those of the forward that may be let go."""
        mine = self.joint.made[node]
        return [
            s
            for s in self.joint.touched[node]
            if s not in mine and not self._is_late(self.makers.get(s, node))
            and s in self.makers
        ]  # fmt: skip


def _forward(joint: Joint) -> list[int]:
    """The nodes of the forward, in order."""
    ends = [*joint.outputs, *joint.needed]
    found: set[int] = set()
    while ends:
        k = ends.pop()
        if k not in found and not joint.backward[k]:
            found.add(k)
            ends += joint.inputs[k]
    return sorted(found)


def rows(name: str, problem: Problem, seconds: float) -> None:
    """A row for each budget."""
    joint, usual, total = problem
    plain = account(joint, joint.direct, ()).peak
    begin = time.process_time()
    plans = list(front(PlanCounter(joint, joint.needed), usual))
    took = time.process_time() - begin
    title = (
        f"{name}: {len(joint.nodes)} nodes, plain {plain:,}, planned in {took:.1f} s"
    )
    table = Table("budget", "ours %", "referee %", "none below %", "s", title=title)
    for share in SHARES:
        budget = int(share * plain)
        fits = [each for each in plans if each.peak <= budget]
        begin = time.monotonic()
        referee = Referee(joint, budget, fits[-1].keep if fits else None)
        found, bound = referee.solve(seconds)
        took = time.monotonic() - begin
        if fits and fits[-1].cost < bound:
            raise SystemExit("Our plan lies below the bound: one of the two is wrong.")
        ours = 100 * fits[-1].cost / total if fits else "none"
        theirs = "none" if found is None else 100 * found / total
        least = "there is none" if bound == float("inf") else 100 * bound / total
        table.row(share, ours, theirs, least, took)


def main() -> None:
    quick = {"names": ["mixer"], "seconds": 2.0}
    given = asked(__doc__, MODELS, quick, seconds=60.0)
    missing("ortools")
    torch.set_num_threads(1)
    for name in given.names:
        torch.manual_seed(0)
        rows(name, traced(*MODELS[name]()), given.seconds)


if __name__ == "__main__":
    main()

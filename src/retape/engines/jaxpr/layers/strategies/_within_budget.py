"""`within`: the cut of least work whose gradient, when compiled, keeps to a budget.

What a cut takes is predicted by `_choose_segments`, and the compiler has the last word:
it fuses, and it needs working memory. So the dynamic programme is solved for a row of
targets. Its answers, by falling work, are the same for every budget.

A scan is one operation here, and how scans are run (`loop_ways`) is another choice of
the same kind: where they do most of the work it is made first, else if no cut fits; and
if neither does, both together. `_search` makes either choice.

Where a policy is passed a budget stands for it (`as_policy`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from jax.extend import core

from retape._bytes import format_bytes
from retape._errors import BudgetError, PlanError
from retape.engines.jaxpr.calls._placement import for_one_device, may_be_spread
from retape.engines.jaxpr.jaxprs._avals import check_sizes_known
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._structural_equality import deduplicate
from retape.engines.jaxpr.layers.loops._cut_loop import Loops, has_loops, loop_ways
from retape.engines.jaxpr.layers.remat._choose_segments import (
    Cut,
    Cutter,
    beyond,
    least_peak,
    least_work_cut,
    segments_behind,
    views_first,
)
from retape.engines.jaxpr.layers.remat._flat_program import Graph
from retape.engines.jaxpr.layers.remat._policy import Policy, Strategy
from retape.engines.jaxpr.layers.remat._run_segments import Stretch, run_stretches
from retape.engines.jaxpr.layers.remat._saves import Saves
from retape.engines.jaxpr.layers.strategies._compiled_footprint import Inputs
from retape.engines.jaxpr.layers.strategies._cutting import in_way, with_loops
from retape.engines.jaxpr.layers.strategies._deferred_choice import run_late
from retape.engines.jaxpr.layers.strategies._search import Search
from retape.plan._base import Plan
from retape.plan._constructors import within

_TARGETS = 24
"""Budgets that the dynamic programme is solved for, from the least peak to all."""


_SMALLER = "make the arguments smaller"
_OF_ONE = (
    "use a mesh with explicit axes if the arguments are spread over devices: on "
    "automatic ones these are the bytes that one device would need for all of it"
)

Evaluation = Callable[[Sequence[Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class Within(Strategy):
    """`retape.within` as a policy."""

    budget: int

    def run(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        return run_late(graph, self, values)

    def choose(self, graph: Graph, inputs: Inputs) -> Evaluation:
        """The graph cut for these moving inputs, its loops run in a way that fits.

        Raises:
            BudgetError: If nothing fits; with the least budget that would do.
        """
        avals = [v.aval for v in graph.jaxpr.invars]
        check_sizes_known(avals, f"`policies.within({self.budget})`")
        spread = may_be_spread(core.ClosedJaxpr(graph.jaxpr, ()))
        run, least = _fitting(graph, inputs, self.budget)
        if run is None:
            raise BudgetError(
                f"`within({self.budget})` ({format_bytes(self.budget)}) cannot be "
                "kept, whatever is run again. The least budget that would do is "
                f"{least} bytes ({format_bytes(least)}). Pass at least that, or "
                f"{_OF_ONE if spread else _SMALLER}.",
                least,
            )
        if not spread:
            return run
        looked_at = inputs.moving.index(True)

        def refitted(values: Sequence[Any]) -> list[Any]:
            known = list(values)
            known[looked_at] = for_one_device(known[looked_at], self.budget)
            return run(known)

        return refitted


Fit = tuple[Evaluation | None, int]
"""How to run a function within a budget; or `None`, and the least that would do."""


def _fitting(graph: Graph, inputs: Inputs, budget: int) -> Fit:
    """Cuts of the function, or ways of its loops, or at last both."""
    tries = [_by_cut, *([_by_loops, _by_both] if has_loops(graph) else [])]
    if graph.is_mostly_loops:
        tries[:2] = reversed(tries[:2])
    found: list[int] = []
    for attempt in tries:
        run, least = attempt(graph, inputs, budget)
        if run is not None:
            return run, least
        found.append(least)
    return None, min(found)


def _by_loops(graph: Graph, inputs: Inputs, budget: int) -> Fit:
    """All is stored but in loops, which are run in a way of less."""
    search, ways = _loops(graph, inputs)
    best = search.best(budget)
    if best is None:
        return None, search.least_budget()
    return partial(with_loops, graph, ways[best]), budget


def _by_both(graph: Graph, inputs: Inputs, budget: int) -> Fit:
    """Loops in the way that takes least, and cuts around them."""
    search, ways = _loops(graph, inputs)
    inside, consts = in_way(graph, ways[search.least()])
    run, least = _by_cut(inside, inputs.behind(consts), budget)
    if run is None:
        return None, least
    return lambda values: run([*consts, *values]), least


def _by_cut(graph: Graph, inputs: Inputs, budget: int) -> Fit:
    """The graph with views in front, cut between its operations."""
    graph, first = views_first(graph)
    program = deduplicate(core.ClosedJaxpr(graph.jaxpr, ()))
    search, cuts = _cuts_of(program, first, inputs)
    best = search.best(budget)
    if best is None:
        return None, search.least_budget()
    # The same program from another trace has variables of its own.
    own = dict(zip(_written_values(search.graph), _written_values(graph), strict=True))
    cut = [
        replace(s, saves=Saves(frozenset(map(own.get, s.saves.made))))
        for s in cuts[best]
    ]
    return partial(run_stretches, graph, cut), budget


def _cuts(graph: Graph) -> list[Cut]:
    """The answers of the dynamic programme for all targets, by falling work."""
    least = least_peak(Cutter(graph))
    cutter = Cutter(graph, ("mark", "products", "store"))
    found = {least.stretches: least}
    low, high = max(1, least.peak_bytes), max(1, cutter.everything)
    for i in range(_TARGETS):
        cut = least_work_cut(cutter, round(low * (high / low) ** (i / _TARGETS)))
        if cut is not None:
            found.setdefault(cut.stretches, cut)
    return sorted(found.values(), key=lambda cut: (-cut.work, cut.peak_bytes))


def _written_values(graph: Graph) -> list[Any]:
    return [v for eqn in graph.jaxpr.eqns for v in eqn.outvars]


@cached(32)
def _cuts_of(
    program: core.ClosedJaxpr, first: int, inputs: Inputs
) -> tuple[Search, Sequence[Sequence[Stretch]]]:
    """The search among cuts behind the first operations, the last of which is none."""
    graph = Graph(program.jaxpr)
    rest = beyond(graph, first)
    found, whole = _cuts(rest), Cutter(rest)
    plain = [Stretch(0, len(graph), marked=False)]
    cuts = [*(segments_behind(first, cut.stretches) for cut in found), plain]
    predicted = [
        max(1, size) for size in (*(c.peak_bytes for c in found), whole.stored)
    ]
    work = [c.work / max(1, whole.work[-1]) for c in found]
    run = lambda n, values: run_stretches(graph, cuts[n], values)  # noqa: E731
    return Search(graph, inputs, run, [*work, 0], predicted), cuts


def _loops(graph: Graph, inputs: Inputs) -> tuple[Search, list[Loops | None]]:
    """The search among ways of loops, the last of which is as they are."""
    return _loops_of(deduplicate(core.ClosedJaxpr(graph.jaxpr, ())), inputs)


@cached(32)
def _loops_of(
    program: core.ClosedJaxpr, inputs: Inputs
) -> tuple[Search, list[Loops | None]]:
    graph = Graph(program.jaxpr)
    ways = loop_ways(graph)[::-1]
    run = lambda n, values: with_loops(graph, ways[n], values)  # noqa: E731
    return Search(graph, inputs, run, range(len(ways), 0, -1)), ways


def as_policy(policy: Any) -> Policy | None:
    """The policy that was passed; a budget such as `retape.within("1 MB")` is one.

    An operation's parameters are passed by name, and differ from one operation to
    another: a policy takes any. What makes policies does not.

    Raises:
        PlanError: If `policy` is neither a policy, nor a budget, nor `None`.
    """
    if policy is None or (callable(policy) and _takes_any_name(policy)):
        return policy
    if isinstance(policy, Plan) and policy.is_tree and policy.budget is not None:
        return _of_budget(policy, policy.budget)
    if isinstance(policy, Plan):
        advice = (
            "This plan counts steps: pass it to `retape.jax.scan` as `plan`; a budget "
            "such as `retape.within(...)` is a policy, too."
        )
    elif callable(policy):
        advice = (
            "If it makes policies, call it, as in `policies.selective()`; if it is "
            "one, add `**params` to its parameters."
        )
    else:
        advice = (
            "Pass one of `retape.jax.policies`, such as `policies.selective()`, or "
            "of `jax.checkpoint_policies`."
        )
    raise PlanError(
        f"`policy={policy!r}` is not a policy, which is asked about each operation as "
        f"`policy(primitive, *types, **params)`. {advice}"
    )


def _of_budget(plan: Plan, budget: int) -> Policy:
    """The policy that keeps to the budget of a plan, which says nothing else."""
    if plan != within(budget):
        raise PlanError(
            f"`policy={plan!r}` says how a run's steps are divided, and a policy "
            f"divides operations. Pass `retape.within({budget})`."
        )
    return Within(budget)


def _takes_any_name(policy: Callable[..., Any]) -> bool:
    try:
        taken = inspect.signature(policy).parameters.values()
    except (TypeError, ValueError):  # one that is not written in Python
        return True
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in taken)

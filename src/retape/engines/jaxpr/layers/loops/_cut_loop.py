"""A loop of a program, or all loops of one, run in another way than they were written.

JAX traces a body once for a function and its types. What is cut is that body, as it
stands in the loop's equation, and a body that was cut before is not cut again. The face
of a loop therefore lets JAX write it; what JAX refuses is refused in its words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
from jax.extend import core

from retape._errors import PlanError, UnsupportedError
from retape.engines.jaxpr.analysis._known_values import Known
from retape.engines.jaxpr.analysis._trip_count import trip_bounds
from retape.engines.jaxpr.api._call_cache import is_traced_once
from retape.engines.jaxpr.api._transform import checkpointed
from retape.engines.jaxpr.intake._effects import let_happen, take_out
from retape.engines.jaxpr.intake._hijax import as_classic
from retape.engines.jaxpr.jaxprs._avals import as_weak, struct
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._evaluate import (
    bind,
    evaluate,
    restricted,
    which,
)
from retape.engines.jaxpr.jaxprs._jax_internals import (
    DropVar,
    classic_rules,
    current_source,
)
from retape.engines.jaxpr.jaxprs._rewrite import known_length
from retape.engines.jaxpr.jaxprs._structural_equality import deduplicate
from retape.engines.jaxpr.jaxprs._subprogram import hoist, variables
from retape.engines.jaxpr.jaxprs._target import platform
from retape.engines.jaxpr.layers.loops._nested_loop import Turns, run_cut
from retape.engines.jaxpr.layers.loops._options import LoopOptions
from retape.engines.jaxpr.layers.remat._flat_program import (
    Graph,
    graph_of,
    is_loop,
    is_nested,
)
from retape.engines.jaxpr.layers.remat._policy import (
    Strategy,
    check_names,
    saves_products,
)


class Unknown(NamedTuple):
    """What is said of a loop whose number of trips is unknown while tracing."""

    loop: str
    why: str


def run_loop(
    plainly: Callable[[], Any], options: LoopOptions, unknown: Unknown | None = None
) -> Any:
    """The result of a function whose one loop is run as the options say.

    Side effects of its body happen once, in a loop beside it: segments are run again.

    Args:
        plainly: Runs the loop by `jax.lax`.
        options: How it is run.
        unknown: What is said if it is a `while` loop that cannot be counted.

    Raises:
        UnsupportedError: If the body has a side effect whose result it uses.
        PlanError: If there is an option for which trips have to be counted, or the
            length is negative.
    """
    # With `jit` off JAX runs loops in Python: there would be none to cut.
    with jax.disable_jit(False), classic_rules():
        closed, shape = jax.make_jaxpr(plainly, return_shape=True)()
    pure, acting = take_out(as_classic(closed))
    if acting is not None:
        let_happen(*hoist(acting))
    pure = _unread_dropped(pure)
    counts = {} if options.plan else _trip_counts(pure)

    def apply(eqn: core.JaxprEqn, values: list[Any]) -> list[Any]:
        match eqn.primitive.name:
            case "scan":
                _check_length(known_length(eqn))
                return run_scan(eqn, values, options)
            case "while":
                if id(eqn) in counts:
                    turns, values = Turns.of_while(eqn, values, counts[id(eqn)])
                    return _run_turns(turns, values, options)
                assert unknown is not None, "a scan is not written as a `while`"
                _check_only_plan(options, unknown)
                return _under_plan(eqn, values, options)
            case _:
                return bind(eqn, values)

    outs = evaluate(pure.jaxpr, [], apply, consts=pure.consts)
    return jax.tree.unflatten(
        jax.tree.structure(shape), as_weak(outs, closed.out_avals)
    )


def run_scan(
    eqn: core.JaxprEqn, values: list[Any], options: LoopOptions, *, deep: bool = False
) -> list[Any]:
    """A `scan` as the options say.

    Args:
        eqn: The scan.
        values: What it is given.
        options: How it is run.
        deep: Whether loops in its body are run so, too.
    """
    if options.plan is not None:
        return _under_plan(eqn, values, options)
    return _run_turns(Turns.of_scan(eqn), values, options, deep=deep)


def _run_turns(
    turns: Turns, values: list[Any], options: LoopOptions, *, deep: bool = False
) -> list[Any]:
    check_names(options.policy, turns.body.jaxpr, "the body of the loop")
    once = is_traced_once()
    turns = turns._replace(body=deduplicate(turns.body, names=True, once=once))
    # A policy is asked anew each time, since it may answer with a warning.
    cut = _cut_program if options.policy is None else _cut_program.made_anew
    types = tuple(struct(jax.typeof(v)) for v in values)
    at = current_source()

    def here(eqn: Any, values: list[Any]) -> list[Any]:
        # A loop that was cut for another call comes from this one's line.
        return bind(eqn.replace(source_info=at), values)

    return evaluate(cut(turns, options, deep, types), values, here)


@cached(64)
def _cut_program(
    turns: Turns, options: LoopOptions, deep: bool, types: Sequence[Any]
) -> core.ClosedJaxpr:
    """The loop as a program of its constants, its first carry and what it is over."""
    inside = core.jaxpr_as_fun(turns.body)
    if deep:
        inside = partial(_run_deep, turns.body, options)
    with classic_rules():
        return jax.make_jaxpr(partial(run_cut, turns, inside, options))(*types)


def _run_deep(body: core.ClosedJaxpr, options: LoopOptions, *values: Any) -> list[Any]:
    """The body of a loop, the loops in which are run as the options say."""
    graph, held = graph_of(body)
    return run_scans(graph.jaxpr, [*held, *values], options, deep=True)


def run_scans(
    jaxpr: core.Jaxpr, values: Sequence[Any], options: LoopOptions, *, deep: bool
) -> list[Any]:
    """A program whose scans are run as the options say."""

    def apply(eqn: core.JaxprEqn, values: list[Any]) -> list[Any]:
        if not is_loop(eqn):
            return bind(eqn, values)
        return run_scan(eqn, values, options, deep=deep)

    return evaluate(jaxpr, values, apply)


def _under_plan(
    eqn: core.JaxprEqn, values: list[Any], options: LoopOptions
) -> list[Any]:
    """A loop that is reversed by the step machine."""
    # A number that stands in the program stays one: a counter is known to begin at 0.
    read = which(not isinstance(atom, core.Literal) for atom in eqn.invars)
    wanted = which(not isinstance(v, DropVar) for v in eqn.outvars)

    def run(*given: Any) -> list[Any]:
        outs = restricted(lambda *every: bind(eqn, list(every)), values, read)(*given)
        return [outs[i] for i in wanted]

    marked = checkpointed(run, plan=options.whole_plan())
    found = dict(zip(wanted, marked(*(values[i] for i in read)), strict=True))
    return [found.get(i) for i in range(len(eqn.outvars))]


def _unread_dropped(program: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """A program whose operations make nothing under a name that is not read."""
    jaxpr = program.jaxpr
    read = {v for e in jaxpr.eqns for v in variables(e.invars)}
    read.update(variables(jaxpr.outvars))
    eqns = [
        e.replace(outvars=[v if v in read else DropVar(v.aval) for v in e.outvars])
        for e in jaxpr.eqns
    ]
    return program.replace(jaxpr=jaxpr.replace(eqns=eqns))


def _trip_counts(program: core.ClosedJaxpr) -> dict[int, int]:
    """By each `while` loop of a program: how often it turns, if that is known."""
    found: dict[int, int] = {}
    env = Known(program, [])
    for eqn in program.eqns:
        if eqn.primitive.name == "while":
            trips = trip_bounds(eqn, env.read_all(eqn.invars))
            if trips.least == trips.most:
                found[id(eqn)] = trips.least
        env.learn(eqn)
    return found


def _check_length(length: int) -> None:
    """Refuse a negative number of steps, which no compiler takes."""
    if length < 0:
        raise PlanError(
            f"`length={length}` is not valid: it is the number of steps. Pass 0 or "
            "more."
        )


def _check_only_plan(options: LoopOptions, unknown: Unknown) -> None:
    for option in ("levels", "segment_length", "policy"):
        if getattr(options, option) is not None:
            raise PlanError(
                f"`{option}={getattr(options, option)!r}` cannot be kept by this "
                f"`{unknown.loop}`: {unknown.why}, so the number of trips is unknown "
                "while tracing. Pass a `plan`, such as `retape.logarithmic()`, instead."
            )


@dataclass(frozen=True, slots=True)
class Loops(Strategy):
    """The program's scans as `retape.jax.scan` with these options."""

    options: LoopOptions
    deep: bool = False
    """Whether loops in the bodies of loops are run so, too."""

    def run(self, graph: Graph, values: Sequence[Any]) -> list[Any]:
        if not any(eqn.primitive.name == "scan" for eqn in graph.jaxpr.eqns):
            raise UnsupportedError(
                "a loop was to be run in another way, and it was traced to a program "
                "with 0 scans at its top. This release of what made the loop builds it "
                "otherwise: use one that Retape supports."
            )
        return run_scans(graph.jaxpr, values, self.options, deep=self.deep)


def loop_ways(graph: Graph) -> list[Loops | None]:
    """How loops may be reversed, by rising extra work; `None` is as they are."""
    fourth = LoopOptions(levels=2, policy=saves_products)
    if platform() != "cpu":
        fourth = LoopOptions(levels=1, offload="host")
    options = [
        LoopOptions(levels=1, policy=saves_products),
        LoopOptions(levels=1),
        fourth,
        LoopOptions(levels=2),
    ]
    more = [LoopOptions(levels=k) for k in (3, 5)]
    deep = [LoopOptions(levels=k) for k in (1, 2)]
    nested = any(is_nested(eqn) for eqn in graph.jaxpr.eqns)
    last = [Loops(o, deep=True) for o in deep] if nested else list(map(Loops, more))
    return [None, *map(Loops, options), *last]


def has_loops(graph: Graph) -> bool:
    """Whether there is a scan of more than one step."""
    return any(map(is_loop, graph.jaxpr.eqns))

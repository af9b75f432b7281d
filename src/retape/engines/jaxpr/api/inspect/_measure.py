"""`measure` runs a gradient and counts what it really did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, Literal, NamedTuple, overload

import jax
import jax.numpy as jnp
from jax.extend import core

from retape._errors import UnsupportedError
from retape.driver._health import Health, check_growth
from retape.driver._memory_trace import MemoryTrace, Sample, predict_memory
from retape.driver._report import Report
from retape.engines.jaxpr._pipeline import compile_program
from retape.engines.jaxpr.analysis._activity import propagate
from retape.engines.jaxpr.api._call_cache import Places, placements
from retape.engines.jaxpr.api._gradient_options import (
    check_plan,
)
from retape.engines.jaxpr.api._gradient_problem import GradientProblem, pose_abstract
from retape.engines.jaxpr.api.health._diagnose import diagnose
from retape.engines.jaxpr.calls._hidden_tapes import warn_of_hidden_tapes
from retape.engines.jaxpr.calls._placement import mesh_of_arrays
from retape.engines.jaxpr.calls._rules import call
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.ir._ir import count_loops
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._jax_internals import under_transformation
from retape.engines.jaxpr.jaxprs._structural_equality import deduplicate
from retape.engines.jaxpr.sizing._byte_counts import (
    fixed_bytes,
    snapshot_bytes,
    stage_bytes,
)
from retape.engines.jaxpr.sizing._choose_settings import (
    compile_for_plan,
    plan_of_settings,
)
from retape.engines.jaxpr.sweep._state import SweepCounts
from retape.engines.jaxpr.sweep._sweep_program import sweep
from retape.engines.jaxpr.xla._ahead_of_time import (
    aot_compile,
    call_compiled,
    checked_results,
)
from retape.plan._base import Plan
from retape.plan._options import Loops
from retape.schedule import OnlineBinomial


class Measured(NamedTuple):
    """The value, the gradient and the report that `measure` returns."""

    value: Any
    gradient: Any
    report: Report


class Diagnosed(NamedTuple):
    """What `measure(..., health=True)` returns."""

    value: Any
    gradient: Any
    report: Report
    health: Health


@overload
def measure(
    fun: Callable[..., Any],
    *args: Any,
    plan: Plan | None = None,
    memory: float | str | None = None,
    loops: Loops | None = None,
    argnums: int | Sequence[int] = 0,
    health: Literal[False] = False,
    growth: float = 1e6,
    **kwargs: Any,
) -> Measured: ...


@overload
def measure(
    fun: Callable[..., Any],
    *args: Any,
    plan: Plan | None = None,
    memory: float | str | None = None,
    loops: Loops | None = None,
    argnums: int | Sequence[int] = 0,
    health: Literal[True],
    growth: float = 1e6,
    **kwargs: Any,
) -> Diagnosed: ...


def measure(
    fun: Callable[..., Any],
    *args: Any,
    plan: Plan | None = None,
    memory: float | str | None = None,
    loops: Loops | None = None,
    argnums: int | Sequence[int] = 0,
    health: bool = False,
    growth: float = 1e6,
    **kwargs: Any,
) -> Measured | Diagnosed:
    """Value, gradient and a report of what the sweep really did.

    Args:
        fun: A function that returns a scalar.
        *args: Its arguments: arrays and numbers, or trees of them.
        plan: How much memory to use; `retape.logarithmic()` by default.
        memory: Bytes, or a text such as "1 GB": instead of `plan`, for
            `plan=retape.within(memory)`.
        loops: As for `retape.jax.grad`.
        argnums: By which positional arguments the gradient is taken.
        health: Whether to watch how large cotangents are on the way back, and to name
            the step, the line and the operation that spoils the gradient, if it is not
            finite. Every step is looked at, with a pass over the cotangents that it
            wrote; only if something is wrong, the sweep is made again to find it.
        growth: With `health`: how many times larger than at the end of the run
            cotangents may become before that counts as a fault.
        **kwargs: Keyword arguments for `fun`.

    Returns:
        `(value, gradient, report)`, and a `Health` behind them with `health=True`.

    Raises:
        UnsupportedError: Inside `jax.jit` or another transformation, where nothing is
            run.
        GradientTypeError: If the result is not a real scalar, or an argument is not of
            a floating type.
        PlanError: If `plan` is no plan, or one that cannot be obeyed, or `growth` is
            not above 1.
        BudgetError: If a budget is below the least possible, which is named.
        DeterminismError: If what `health` found is not there when the program is run
            again.

    Examples:
        >>> import jax, retape, retape.jax
        >>> def power(x, n):
        ...     return jax.lax.fori_loop(0, n, lambda i, y: y * x, 1.0)
        >>> plan = retape.fixed_space(snapshots=4, stage=1)
        >>> done = retape.jax.measure(power, 1.5, 10, plan=plan)
        >>> done.report.taped, done.report.peak_snapshots
        (12, 4)
        >>> def root(x):           # finite, and its derivative is not
        ...     return jax.lax.fori_loop(0, 9, lambda i, y: jax.numpy.sqrt(y), x)
        >>> done = retape.jax.measure(root, 0.0, health=True)
        >>> done.health.fault.kind, done.health.fault.operation
        ('reverse', 'sqrt')
    """
    check_growth(growth)
    if under_transformation(jax.tree.leaves((args, kwargs))):
        raise UnsupportedError(
            "`measure` runs a function and counts, and this call is inside `jax.jit` "
            "or another transformation, where nothing is run. Call it outside, or use "
            "`retape.jax.value_and_grad` here."
        )
    plan = check_plan(plan, loops, memory=memory)
    problem = pose_abstract(fun, plan, args, kwargs, argnums)
    warn_of_hidden_tapes(problem.jaxpr, problem.active)
    with mesh_of_arrays(problem.values):
        return _measured(problem, plan, health, growth)


def _measured(
    problem: GradientProblem, plan: Plan | None, health: bool, growth: float
) -> Measured | Diagnosed:
    arrays = list(map(jnp.asarray, problem.values))
    places = placements(arrays)
    # An equal program that was measured before is not compiled again.
    known = deduplicate(problem.jaxpr)
    program, settings, compiled, tree = _prepared(
        known, problem.active, plan, health, places
    )
    values = problem.values
    began = perf_counter()
    done = jax.block_until_ready(call_compiled(compiled, values))
    seconds = perf_counter() - began
    outs, found, counts = jax.tree_util.tree_unflatten(tree, done)
    value, _, gradient = problem.result(outs, found)
    report = _report(program, settings, counts, seconds)
    budget = None if plan is None else plan.budget
    memory = memory_trace(program, settings, report, compiled, budget)
    report = replace(report, memory=memory)
    if not health:
        value, gradient = checked_results((value, gradient))
        return Measured(value, gradient, report)

    def own() -> Compiled:
        """The program with the lines of this function, not those of an equal one."""
        if known is problem.jaxpr:
            return program
        return _program(plan, problem.jaxpr, problem.active, health)[0]

    operands = [*values, *program.constants]
    seeds = [problem.one()] if problem.has_derivative else []
    state = diagnose(
        own,
        settings,
        operands,
        seeds,
        counts,
        found,
        growth,
        is_finite=bool(jnp.isfinite(value)),
    )
    return Diagnosed(value, gradient, report, state)


class _Prepared(NamedTuple):
    """A program to be measured, compiled."""

    program: Compiled
    settings: Settings
    compiled: jax.stages.Compiled
    tree: Any


@cached(16)
def _prepared(
    jaxpr: core.ClosedJaxpr,
    active: tuple[bool, ...],
    plan: Plan | None,
    health: bool,
    places: Places,
) -> _Prepared:
    """Compile the gradient of a program for values that are in such places."""
    program, settings = _program(plan, jaxpr, active, health)
    types = tuple(
        jax.ShapeDtypeStruct(
            aval.shape,
            aval.dtype,
            weak_type=aval.weak_type,
            sharding=sharding if committed else None,
        )
        for aval, (sharding, committed) in zip(jaxpr.in_avals, places, strict=True)
    )
    # A value that does not depend on the arguments has no cotangent.
    moves = propagate(jaxpr, active)[0]
    seeds = [jnp.ones((), jaxpr.out_avals[0].dtype)] if moves else []

    def run(values: Sequence[Any]) -> tuple[list[Any], list[Any], SweepCounts]:
        operands = [*values, *program.constants]
        return sweep(program, settings, operands, seeds, watch=health)

    traced, shape = jax.make_jaxpr(run, return_shape=True)(types)
    tree = jax.tree_util.tree_structure(shape)

    def whole(values: Sequence[Any]) -> list[Any]:
        return call(traced, plan, values)

    return _Prepared(program, settings, aot_compile(whole, types), tree)


def _program(
    plan: Plan | None, jaxpr: core.ClosedJaxpr, active: tuple[bool, ...], health: bool
) -> tuple[Compiled, Settings]:
    program, settings = compile_for_plan(plan, jaxpr, active, compile_program)
    if health and not count_loops(program.items):
        # Loops so short that all of them are one step: each iteration is looked at.
        opened = partial(compile_program, grain=0)
        program, settings = compile_for_plan(plan, jaxpr, active, opened)
    return program, settings


def _report(
    program: Compiled, settings: Settings, counts: SweepCounts, seconds: float
) -> Report:
    steps, stage = int(counts.steps), settings.stage
    peak = int(counts.peak_snapshots)
    return Report(
        length=steps,
        advances=int(counts.advances),
        taped=steps,
        stores=int(counts.stores),
        restores=int(counts.restores),
        reverses=-(-steps // stage),
        longest_stage=min(stage, steps),
        peak_snapshots=peak,
        peak_bytes=peak * program.layout.snapshot_bytes(),
        repaired=0,
        resumed=False,
        seconds={"sweep": seconds},
    )


_MOST_STAGES = 200_000
"""Stages beyond which a schedule is not walked through for a picture."""


def memory_trace(
    program: Compiled,
    settings: Settings,
    report: Report,
    compiled: Any,
    budget: int | None,
) -> MemoryTrace:
    """What the settings of a sweep predict, and what its compiled program takes.

    XLA gives a program one block of memory for all of its temporary arrays, as large as
    the most that is alive at once. So the measure is one number, that of the compiled
    gradient.
    """
    steps, seconds = report.length, sum(report.seconds.values())
    predicted = ()
    if report.reverses <= _MOST_STAGES and not settings.plain and steps:
        if program.program.length is None and settings.forward == "online":
            actions = OnlineBinomial(settings.snapshots, settings.stage).actions(steps)
        else:
            actions = plan_of_settings(settings).schedule(steps)
        longest = max(1, min(settings.stage, steps))
        predicted = predict_memory(
            actions,
            snapshot_bytes(program),
            stage_bytes(program, settings.stage) // longest,
            working_bytes=fixed_bytes(program, settings.stage, thrift=settings.thrift),
            on_disk=settings.on_host,
        )
    found = compiled.memory_analysis()
    nbytes = 0 if found is None else int(found.temp_size_in_bytes)
    work = predicted[-1].work if predicted else report.advances + steps
    measured = (Sample(0, nbytes, 0.0, 0), Sample(work, nbytes, seconds, steps))
    return MemoryTrace(
        predicted,
        measured if nbytes else (),
        "temporary arrays of the compiled program",
        budget=budget,
    )

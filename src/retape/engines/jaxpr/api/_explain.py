"""`explain` predicts what a gradient takes; `measure` runs it and counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, Literal, NamedTuple, overload

import jax

from retape._bytes import format_bytes
from retape._errors import PlanError, UnsupportedError
from retape._html import record_html
from retape.driver import Report
from retape.engines.jaxpr._pipeline import compile_program
from retape.engines.jaxpr.api._gradient_options import (
    GradientOptions,
    check_callable,
    check_plan,
)
from retape.engines.jaxpr.api._gradient_problem import GradientProblem, trace_gradient
from retape.engines.jaxpr.api._health import Health, diagnose
from retape.engines.jaxpr.api._lines import with_lines
from retape.engines.jaxpr.api._memory_trace import memory_trace
from retape.engines.jaxpr.api._trace import flatten_call
from retape.engines.jaxpr.calls._hidden_tapes import warn_of_hidden_tapes
from retape.engines.jaxpr.calls._platform_form import platform_loops
from retape.engines.jaxpr.calls._rules import call
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.ir._ir import Loop
from retape.engines.jaxpr.jaxprs._jax_internals import under_transformation, was_tried
from retape.engines.jaxpr.nest._chunk_sizes import most_waits
from retape.engines.jaxpr.sizing._byte_counts import (
    bytes_per_step,
    host_bytes,
    peak_bytes,
)
from retape.engines.jaxpr.sizing._choose_settings import (
    compile_for_plan,
    default_plan,
    plan_of_settings,
)
from retape.engines.jaxpr.sweep._state import SweepCounts
from retape.engines.jaxpr.sweep._sweep import sweep
from retape.engines.jaxpr.xla._ahead_of_time import aot_compile, call_compiled
from retape.plan._base import Plan, Prediction
from retape.plan._offload import on_host
from retape.plan._options import Loops


@dataclass(frozen=True, slots=True)
class Explanation:
    """A prediction for one function and plan; `str` of it is meant to be read.

    Attributes:
        plan: The plan that was asked for.
        steps: Steps of a run, or `None` if only running it can tell.
        blocks: Pieces of straight-line code; running one is one step.
        loops: Loops whose iterations are steps.
        registers: Values that a snapshot holds.
        capsule_bytes: Bytes of one snapshot.
        kept_bytes: Bytes of values that are held once for the whole run.
        tape_bytes: Bytes of tape that each step of a stage takes.
        snapshots: Slots for snapshots.
        stage: Steps in a stage.
        peak_bytes: Predicted: registers, cotangents, snapshots and tape together.
        host_bytes: Of the snapshots that wait in the host's memory, if any; they are
            no part of `peak_bytes`.
        prediction: Exact counts of the schedule, if the number of steps is known.
        untried: The release of JAX, if Retape was not tried with it: it is right there
            but leaves out what relies on how a release compiles (a sweep over small
            arrays as one kernel).
        form: For whom the gradient's loops are made, see `loops` of `retape.jax.grad`.
        waits: With `form="device"`: how often a GPU's host waits in all, at most, if
            that is known without running (one loop of known length);
            `retape.jax.count_waits` counts for any program.
    """

    plan: Plan
    steps: int | None
    blocks: int
    loops: int
    registers: int
    capsule_bytes: int
    kept_bytes: int
    tape_bytes: int
    snapshots: int
    stage: int
    peak_bytes: int
    host_bytes: int
    prediction: Prediction | None
    untried: str | None = None
    form: Loops = "host"
    waits: int | None = None

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        return record_html(self)

    def __str__(self) -> str:
        steps = "known only at its end" if self.steps is None else f"{self.steps}"
        lines = [
            f"plan      {self.plan}",
            f"program   {self.blocks} blocks, {self.loops} loops, steps: {steps}",
            f"snapshot  {self.registers} registers, "
            f"{format_bytes(self.capsule_bytes)}; "
            f"held once: {format_bytes(self.kept_bytes)}",
            f"tape      {format_bytes(self.tape_bytes)} a step",
            f"chosen    {self.snapshots} snapshots, stages of {self.stage} steps, "
            f"peak about {format_bytes(self.peak_bytes)}",
        ]
        if self.host_bytes:
            lines[-1] += f", {format_bytes(self.host_bytes)} on the host"
        if self.prediction is not None:
            lines.append(f"schedule  {self.prediction}")
        if self.form == "device":
            most = "known by running" if self.waits is None else f"at most {self.waits}"
            lines.append(f"loops     of known trip count; waits of the host: {most}")
        if self.untried is not None:
            lines.append(
                f"release   JAX {self.untried} was not tried: no sweep is made one "
                "kernel (RETAPE_ONE_KERNEL=1 makes it one)"
            )
        return "\n".join(lines)


class Measured(NamedTuple):
    """The value, the gradient and the report that `measure` returns."""

    value: Any
    gradient: Any
    report: Report


def explain(
    fun: Callable[..., Any],
    *args: Any,
    plan: Plan | None = None,
    loops: Loops | None = None,
    argnums: int | Sequence[int] = 0,
    **kwargs: Any,
) -> Explanation:
    """Predict what `retape.jax.grad(fun, argnums, plan=plan)` would do and take.

    The function is traced, and nothing is run. Nothing is compiled either, but for a
    plan of bytes (`within`): as for the gradient itself, up to three programs may be
    compiled to learn what they take.

    Args:
        fun: A function that returns a scalar.
        *args: Its arguments (or `jax.ShapeDtypeStruct`s of them).
        plan: As for `retape.jax.grad`.
        loops: As for `retape.jax.grad`; by default those of the default backend.
        argnums: As for `retape.jax.grad`.
        **kwargs: Keyword arguments for `fun`.

    Raises:
        PlanError: If the plan needs the number of steps and it is not known.
        BudgetError: If a budget is below the least possible, which is named.

    Examples:
        >>> import jax, jax.numpy as jnp, retape, retape.jax
        >>> def simulate(x):
        ...     step = lambda i, x: jnp.sin(x) + 0.1 * x
        ...     return jnp.sum(jax.lax.fori_loop(0, 10_000, step, x))
        >>> plan = retape.fixed_space(snapshots=8, stage=10)
        >>> explanation = retape.jax.explain(simulate, jnp.ones(100), plan=plan)
        >>> explanation.steps, explanation.prediction.peak_snapshots
        (10002, 8)
    """
    problem = problem_of_call(fun, check_plan(plan, loops), args, kwargs, argnums)
    plan = check_plan(plan, loops or platform_loops()) or default_plan()
    warn_of_hidden_tapes(problem.jaxpr, problem.active)
    program, settings = compile_for_plan(
        plan, problem.jaxpr, problem.active, compile_program
    )
    layout = program.layout
    steps = program.program.length
    w, r = layout.snapshot_bytes(), max(1, bytes_per_step(program))
    prediction = _predict(steps, settings, w, r)
    return Explanation(
        plan=plan,
        steps=steps,
        blocks=len(program.code),
        loops=_count_loops(program.items),
        registers=len(layout.resumed),
        capsule_bytes=w,
        kept_bytes=layout.kept_bytes(),
        tape_bytes=r,
        snapshots=settings.snapshots,
        stage=settings.stage,
        peak_bytes=peak_bytes(program, settings) - host_bytes(program, settings),
        host_bytes=host_bytes(program, settings),
        prediction=prediction,
        untried=None if was_tried() else jax.__version__,
        form="device" if settings.device else "host",
        waits=_waits_of(program, settings, prediction),
    )


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
        loops: As for `retape.jax.grad`.
        argnums: By which positional arguments the gradient is taken.
        health: Whether to watch how large cotangents are on the way back, and to name
            the step, the line and the operation that spoils the gradient, if it is not
            finite. Watching takes a pass over the program's state for each stage; only
            if something is wrong, the sweep is made again to find it.
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
    if not growth > 1:
        raise PlanError(
            f"`growth={growth!r}` would call every gradient ill. Pass how many times "
            "larger cotangents may become, for example `growth=1e6`."
        )
    if under_transformation(jax.tree.leaves((args, kwargs))):
        raise UnsupportedError(
            "`measure` runs a function and counts, and this call is inside `jax.jit` "
            "or another transformation, where nothing is run. Call it outside, or use "
            "`retape.jax.value_and_grad` here."
        )
    plan = check_plan(plan, loops)
    problem = _pose_abstract(fun, plan, args, kwargs, argnums)
    warn_of_hidden_tapes(problem.jaxpr, problem.active)
    if health:
        problem = replace(problem, jaxpr=with_lines(problem.jaxpr))
    given = problem.jaxpr, problem.active
    program, settings = compile_for_plan(plan, *given, compile_program)
    if health and not _count_loops(program.items):
        # Loops so short that all of them are one step: each iteration is looked at.
        opened = partial(compile_program, grain=0)
        program, settings = compile_for_plan(plan, *given, opened)

    def run(values: Sequence[Any]) -> tuple[list[Any], list[Any], SweepCounts]:
        operands = [*values, *program.constants]
        return sweep(program, settings, operands, [problem.one()], watch=health)

    jaxpr, shape = jax.make_jaxpr(run, return_shape=True)(problem.values)
    tree = jax.tree_util.tree_structure(shape)

    def whole(values: Sequence[Any]) -> Any:
        return jax.tree_util.tree_unflatten(tree, call(jaxpr, plan, values))

    compiled = aot_compile(whole, problem.values)
    began = perf_counter()
    outs, found, counts = jax.block_until_ready(call_compiled(compiled, problem.values))
    seconds = perf_counter() - began
    value, _, gradient = problem.result(outs, found)
    report = _report(program, settings, counts, seconds)
    budget = None if plan is None else plan.budget
    memory = memory_trace(program, settings, report, compiled, budget)
    report = replace(report, memory=memory)
    if not health:
        return Measured(value, gradient, report)
    operands = [*problem.values, *program.constants]
    seeds = [problem.one()]
    state = diagnose(program, settings, operands, seeds, counts, found, growth)
    return Diagnosed(value, gradient, report, state)


def problem_of_call(
    fun: Callable[..., Any],
    plan: Plan | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: int | Sequence[int],
) -> GradientProblem:
    """The gradient that is asked for, of arguments that may be mere types of arrays."""
    found: list[GradientProblem] = []

    def ask(args: Any, kwargs: Any) -> None:
        found.append(_pose_abstract(fun, plan, args, kwargs, argnums))

    _with_arrays(ask, args, kwargs)
    (problem,) = found
    return problem


def _with_arrays(ask: Callable[[Any, Any], None], args: Any, kwargs: Any) -> None:
    """Call with the arguments, in which a tracer stands for each type of an array."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    types = {i: v for i, v in enumerate(leaves) if isinstance(v, jax.ShapeDtypeStruct)}

    def run(arrays: dict[int, Any]) -> None:
        ask(*tree.unflatten([arrays.get(i, v) for i, v in enumerate(leaves)]))

    if types:
        jax.eval_shape(run, types)
    else:
        run({})


def _pose_abstract(
    fun: Callable[..., Any],
    plan: Plan | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: int | Sequence[int],
) -> GradientProblem:
    check_callable(fun)
    plan = check_plan(plan)
    wanted = GradientOptions(argnums, False, False, False)
    wanted.check_arguments(args)
    pieces = flatten_call(args, kwargs)
    return trace_gradient(fun, wanted, plan, pieces, pieces.leaves)


def _predict(
    steps: int | None, settings: Settings, w: int, r: int
) -> Prediction | None:
    if steps is None:
        return None
    plan = plan_of_settings(settings)
    return (on_host(plan) if settings.on_host else plan).predict(steps, w, r)


def _waits_of(
    program: Compiled, settings: Settings, prediction: Prediction | None
) -> int | None:
    """Waits of a GPU's host, at most, if the schedule is known."""
    if prediction is None or not settings.device or settings.direct:
        return None
    counts = prediction.counts
    # A turn reverses a stage or ends in a store; the start state is stored by nobody.
    turns = counts.reverses + max(0, counts.stores - 1)
    return most_waits(program, settings.stage, counts.advances, turns)


def _count_loops(items: Sequence[Any]) -> int:
    return sum(1 + _count_loops(i.items) for i in items if isinstance(i, Loop))


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

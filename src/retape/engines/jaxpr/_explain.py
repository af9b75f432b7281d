"""What would be done, and what was done: `explain` and `measure`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import jax

from ..._bytes import format_bytes
from ..._errors import UnsupportedError
from ..._offload_plans import on_host
from ..._plan import Plan, Prediction
from ...driver import Report
from ._ahead import called, compiled_for
from ._compile import Compiled, compile_program
from ._ir import Loop, nbytes
from ._primitives import call
from ._problem import Problem, pose
from ._settle import default_plan, exactly, fit
from ._sizes import bytes_per_step, fixed_bytes, snapshot_bytes, stage_bytes
from ._state import Counts, Settings, far_places, slots_of
from ._sweep import sweep
from ._trace import take_apart, under_transformation
from ._wanted import Wanted, check_callable, check_plan


@dataclass(frozen=True, slots=True)
class Explanation:
    """What Retape would do with a function; `str` of it is meant to be read.

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
        return "\n".join(lines)


class Measured(NamedTuple):
    """What `measure` returns."""

    value: Any
    gradient: Any
    report: Report


def explain(
    fun: Callable[..., Any],
    *args: Any,
    plan: Plan | None = None,
    argnums: int | Sequence[int] = 0,
    **kwargs: Any,
) -> Explanation:
    """What `retape.jax.grad(fun, argnums, plan=plan)` would do with these arguments.

    Nothing is compiled or run; the function is traced.

    Args:
        fun: A function that returns a scalar.
        *args: Its arguments (or `jax.ShapeDtypeStruct`s of them).
        plan: As for `retape.jax.grad`.
        argnums: As for `retape.jax.grad`.
        **kwargs: Keyword arguments for `fun`.

    Raises:
        PlanError: If the plan needs the number of steps and it is not known.
        BudgetError: If a budget is below the least possible, which is named.

    Example:
        >>> import jax, jax.numpy as jnp, retape, retape.jax
        >>> def simulate(x):
        ...     step = lambda i, x: jnp.sin(x) + 0.1 * x
        ...     return jnp.sum(jax.lax.fori_loop(0, 10_000, step, x))
        >>> plan = retape.fixed_space(snapshots=8, stage=10)
        >>> explanation = retape.jax.explain(simulate, jnp.ones(100), plan=plan)
        >>> explanation.steps, explanation.prediction.peak_snapshots
        (10002, 8)
    """
    found: list[Problem] = []

    def ask(args: Any, kwargs: Any) -> None:
        found.append(_pose(fun, plan, args, kwargs, argnums))

    _with_arrays(ask, args, kwargs)
    (problem,) = found
    plan = plan or default_plan()
    program, settings = fit(plan, problem.jaxpr, problem.active, compile_program)
    layout = program.layout
    steps = program.program.length
    w, r = layout.capsule_bytes(), max(1, bytes_per_step(program))
    prediction = _predict(steps, settings, w, r)
    return Explanation(
        plan=plan,
        steps=steps,
        blocks=len(program.code),
        loops=_loops(program.items),
        registers=len(layout.places("slot")),
        capsule_bytes=w,
        kept_bytes=layout.kept_bytes(),
        tape_bytes=r,
        snapshots=settings.snapshots,
        stage=settings.stage,
        peak_bytes=peak_bytes(program, settings) - host_bytes(program, settings),
        host_bytes=host_bytes(program, settings),
        prediction=prediction,
    )


def measure(
    fun: Callable[..., Any],
    *args: Any,
    plan: Plan | None = None,
    argnums: int | Sequence[int] = 0,
    **kwargs: Any,
) -> Measured:
    """Value, gradient and a report of what the sweep really did.

    Arguments are those of `explain`; the arguments of `fun` must be arrays or numbers.

    Example:
        >>> import jax, retape, retape.jax
        >>> def power(x, n):
        ...     return jax.lax.fori_loop(0, n, lambda i, y: y * x, 1.0)
        >>> plan = retape.fixed_space(snapshots=4, stage=1)
        >>> done = retape.jax.measure(power, 1.5, 10, plan=plan)
        >>> done.report.taped, done.report.peak_snapshots
        (12, 4)
    """
    if under_transformation(jax.tree.leaves((args, kwargs))):
        raise UnsupportedError(
            "`measure` runs a function and counts, and this call is inside `jax.jit` "
            "or another transformation, where nothing is run. Call it outside, or use "
            "`retape.jax.value_and_grad` here."
        )
    problem = _pose(fun, plan, args, kwargs, argnums)
    program, settings = fit(plan, problem.jaxpr, problem.active, compile_program)

    def run(values: Sequence[Any]) -> tuple[list[Any], list[Any], Counts]:
        operands = [*values, *program.constants]
        return sweep(program, settings, operands, [problem.one()])

    jaxpr, shape = jax.make_jaxpr(run, return_shape=True)(problem.values)
    tree = jax.tree_util.tree_structure(shape)

    def whole(values: Sequence[Any]) -> Any:
        return jax.tree_util.tree_unflatten(tree, call(jaxpr, plan, values))

    compiled = compiled_for(whole, problem.values)
    began = perf_counter()
    outs, found, counts = jax.block_until_ready(called(compiled, problem.values))
    seconds = perf_counter() - began
    value, _, gradient = problem.result(outs, found)
    return Measured(value, gradient, _report(program, settings, counts, seconds))


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


def _pose(
    fun: Callable[..., Any],
    plan: Plan | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: int | Sequence[int],
) -> Problem:
    check_callable(fun)
    check_plan(plan)
    wanted = Wanted(argnums, False, False, False)
    wanted.check_arguments(args)
    pieces = take_apart(args, kwargs)
    return pose(fun, wanted, plan, pieces, pieces.leaves)


def _predict(
    steps: int | None, settings: Settings, w: int, r: int
) -> Prediction | None:
    if steps is None:
        return None
    plan = exactly(settings)
    return (on_host(plan) if settings.on_host else plan).predict(steps, w, r)


def peak_bytes(program: Compiled, settings: Settings) -> int:
    """Registers, cotangents and kept values once; snapshots; the tape of a stage."""
    return (
        fixed_bytes(program, settings.stage, thrift=settings.thrift)
        + settings.snapshots * snapshot_bytes(program)
        + stage_bytes(program, settings.stage)
    )


def host_bytes(program: Compiled, settings: Settings) -> int:
    """Bytes of the slots in the host's memory, that of a stage's start included."""
    avals, far = program.layout.avals, far_places(program, settings)
    return slots_of(program, settings) * sum(nbytes(avals[p]) for p in far)


def _loops(items: Sequence[Any]) -> int:
    return sum(1 + _loops(i.items) for i in items if isinstance(i, Loop))


def _report(
    program: Compiled, settings: Settings, counts: Counts, seconds: float
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
        peak_bytes=peak * program.layout.capsule_bytes(),
        repaired=0,
        resumed=False,
        seconds={"sweep": seconds},
    )

"""`explain` predicts what a gradient takes, without running it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from retape._bytes import format_bytes
from retape.engines.jaxpr._pipeline import compile_program
from retape.engines.jaxpr.api._gradient_options import (
    check_plan,
)
from retape.engines.jaxpr.api._gradient_problem import GradientProblem, problem_of_call
from retape.engines.jaxpr.api._trace import flatten_call
from retape.engines.jaxpr.calls._hidden_tapes import warn_of_hidden_tapes
from retape.engines.jaxpr.calls._platform_form import platform_loops
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.ir._ir import count_loops
from retape.engines.jaxpr.jaxprs._avals import nbytes
from retape.engines.jaxpr.jaxprs._jax_internals import was_tried
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
from retape.engines.jaxpr.sweep._equal_parts import equal_parts
from retape.engines.jaxpr.xla._described_devices import for_device
from retape.engines.jaxpr.xla._standalone import Shardings, places_of
from retape.plan._base import Plan
from retape.plan._options import Loops
from retape.plan._prediction import Prediction
from retape.plan._support import on_host


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
        devices: Over how many devices the arguments are spread; bytes are those of all
            together, while a budget is that of each.
        host_bytes: Of the snapshots that wait in the host's memory, if any; they are
            no part of `peak_bytes`.
        closed_over_bytes: Of the arrays that the function closes over. Like arguments
            they are there before the gradient is, and in no budget.
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
    closed_over_bytes: int
    prediction: Prediction | None
    untried: str | None = None
    form: Loops = "host"
    waits: int | None = None
    devices: int = 1

    def __str__(self) -> str:
        steps = "known only at its end" if self.steps is None else f"{self.steps}"
        lines = [
            f"plan      {self.plan}",
            f"program   {self.blocks} blocks, {self.loops} loops, steps: {steps}",
            f"snapshot  {self.registers} registers, "
            f"{format_bytes(self.capsule_bytes)}; "
            f"held once: {format_bytes(self.kept_bytes)}",
            f"tape      {format_bytes(self.tape_bytes)} a step",
            f"chosen    {self._sizes()}, peak about {format_bytes(self.peak_bytes)}",
        ]
        if self.devices > 1:
            lines[-1] += f" on {self.devices} devices together"
        if self.host_bytes:
            lines[-1] += f", {format_bytes(self.host_bytes)} on the host"
        if self.closed_over_bytes:
            size = format_bytes(self.closed_over_bytes)
            lines.append(
                f"beside    {size} of arrays that are closed over, in no budget"
            )
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

    def _sizes(self) -> str:
        if self.steps == 1:
            return "one step, which is differentiated at once: no snapshot"
        return f"{self.snapshots} snapshots, stages of {self.stage} steps"


def explain(
    fun: Callable[..., Any],
    *args: Any,
    plan: Plan | None = None,
    memory: float | str | None = None,
    loops: Loops | None = None,
    argnums: int | Sequence[int] = 0,
    device: str | None = None,
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
        memory: Bytes, or a text such as "1 GB": instead of `plan`, for
            `plan=retape.within(memory)`.
        loops: As for `retape.jax.grad`; by default those of the default backend.
        argnums: As for `retape.jax.grad`.
        device: A device that need not be here, as for `retape.jax.advise`: its form of
            loops is explained, and its compiler measures a plan of bytes.
        **kwargs: Keyword arguments for `fun`.

    Raises:
        PlanError: If the plan needs the number of steps and it is not known, or no
            device of that name is described.
        BudgetError: If a budget is below the least possible, which is named.
        MissingPackageError: If the compiler for `device` is not there.

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
    plan = check_plan(plan, loops, memory=memory)
    with for_device(device):
        problem = problem_of_call(fun, plan, args, kwargs, argnums)
        plan = check_plan(plan, loops or platform_loops()) or default_plan()
        leaves = flatten_call(args, kwargs, types=True).leaves
        return _explained(problem, plan, places_of(leaves))


def _explained(problem: GradientProblem, plan: Plan, places: Shardings) -> Explanation:
    warn_of_hidden_tapes(problem.jaxpr, problem.active)
    places = (*[None] * problem.constants, *places)
    program, settings = compile_for_plan(
        plan, problem.jaxpr, problem.active, compile_program, places
    )
    layout = program.layout
    steps = program.program.length
    w, r = layout.snapshot_bytes(), max(1, bytes_per_step(program))
    prediction = _predict(steps, settings, w, r)
    return Explanation(
        plan=plan,
        steps=steps,
        blocks=len(program.code),
        loops=count_loops(program.items),
        registers=len(layout.resumed),
        capsule_bytes=w,
        kept_bytes=layout.kept_bytes(),
        tape_bytes=r,
        snapshots=settings.snapshots,
        stage=settings.stage,
        peak_bytes=peak_bytes(program, settings) - host_bytes(program, settings),
        host_bytes=host_bytes(program, settings),
        closed_over_bytes=sum(map(_bytes_of, problem.values[: problem.constants])),
        prediction=prediction,
        untried=None if was_tried() else jax.__version__,
        form="device" if settings.device else "host",
        waits=_waits_of(program, settings, prediction),
        devices=max((p.num_devices for p in places if p is not None), default=1),
    )


def _bytes_of(value: Any) -> int:
    return nbytes(jax.typeof(value))


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
    if equal_parts(program, settings):
        return 0
    if prediction is None or not settings.device or settings.direct:
        return None
    return most_waits(program, settings.stage, prediction.advances, prediction.reverses)

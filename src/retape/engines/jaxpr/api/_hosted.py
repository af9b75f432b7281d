"""Gradients under the host driver: any store, progress, resuming after a crash."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

import numpy as np
from jax.extend import core

from retape._errors import PlanError, StoreError
from retape.driver import run
from retape.driver._progress import Progress
from retape.engines.jaxpr._pipeline import compile_program
from retape.engines.jaxpr.api._gradient_problem import GradientProblem
from retape.engines.jaxpr.calls._hidden_tapes import warn_of_hidden_tapes
from retape.engines.jaxpr.calls._placement import mesh_of_arrays
from retape.engines.jaxpr.calls._platform_form import platform_loops
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._jax_internals import under_transformation
from retape.engines.jaxpr.jaxprs._provenance import Flags
from retape.engines.jaxpr.jaxprs._structural_equality import deduplicate
from retape.engines.jaxpr.sizing._byte_counts import bytes_per_step, snapshot_bytes
from retape.engines.jaxpr.sizing._choose_settings import (
    choose_settings,
    plan_of_settings,
)
from retape.engines.jaxpr.sweep._machine import JaxprMachine
from retape.engines.jaxpr.xla._ahead_of_time import checked_results
from retape.plan._base import Plan
from retape.schedule._offline import Offline
from retape.storage import fingerprint
from retape.storage._disk import AnyStore, store_of


def run_hosted(
    problem: GradientProblem,
    plan: Plan | None,
    store: AnyStore | None,
    progress: bool | Callable[[Progress], None],
    name: str,
) -> tuple[list[Any], list[Any]]:
    """Outputs and gradients, the host obeying the plan's actions one by one.

    Raises:
        PlanError: Under a transformation: there is no host in a compiled program.
        StoreError: If it is no store, or has no place for parts of arrays that are in
            other processes.
    """
    store = store_of(store)
    if under_transformation(problem.values):
        raise PlanError(
            "`store` and `progress` need the host between the steps, and this call is "
            "inside `jax.jit` or another transformation. Call it outside, or leave "
            "both out."
        )
    if not problem.has_derivative:
        return problem.still()
    offload = None if plan is None else plan.offload
    if offload is not None and store is not None:
        raise PlanError(
            f"`store={store!r}` and the plan's `offload={offload!r}` say the same "
            "thing twice: where snapshots are. Pass one of them."
        )
    warn_of_hidden_tapes(problem.jaxpr, problem.active)
    program = deduplicate(problem.jaxpr, names=True)
    compiled, obeyed, settings = _settled(program, problem.active, plan)
    on_host = store is not None and (
        store.needs_arrays or (store.is_durable and not store.keeps_devices)
    )
    if on_host and is_spread(problem.values):
        raise StoreError(
            f"`store={store!r}` keeps whole arrays, and some have parts in other "
            "processes. Pass a `retape.storage.ZarrStore(..., mesh=mesh)`, to which "
            "each process writes its parts, or a `retape.MemoryStore`."
        )
    with mesh_of_arrays(problem.values):
        machine = JaxprMachine(
            compiled,
            [*problem.values, *compiled.constants],
            [problem.one()],
            # The tape is made for this stage length.
            stage=settings.stage,
            on_host=settings.on_host or on_host,
            loops=(None if plan is None else plan.loops) or platform_loops(),
            gives_place=True,
        )
        outcome = run(
            machine,
            # The driver must not choose another stage length.
            obeyed or plan_of_settings(settings),
            store=store,
            progress=progress,
            label=f"{name} {label_of(problem)}",
        )
    return checked_results(outcome.result)


@cached(32)
def _settled(
    jaxpr: core.ClosedJaxpr, active: Flags, plan: Plan | None
) -> tuple[Compiled, Offline | Plan | None, Settings]:
    """The program; what is obeyed of a plan that only its schedule tells; the sizes."""
    compiled = compile_program(jaxpr, active)
    if plan is None or plan.is_tree:
        return compiled, None, choose_settings(plan, compiled)
    n = compiled.program.length
    if n is None and plan.needs_length:
        plan.resolve(None)  # It says why it needs the number of steps.
    sizes = snapshot_bytes(compiled), max(1, bytes_per_step(compiled))
    if n is None:
        stage = plan.online(*sizes).stage
        return compiled, plan.with_stage(stage), Settings(1, stage)
    schedule = plan.schedule(n, *sizes)
    stage = schedule.counts().longest_stage
    return compiled, schedule, Settings(1, max(1, stage))


_MESH_SHOWN = re.compile(r"\bMesh\((?:[^()]|\([^()]*\))*\)")


def label_of(problem: GradientProblem) -> str:
    """A digest of a program and its inputs.

    A run that was begun on one mesh may be gone on with on another, by another number
    of processes. So how a mesh looks is no part of it.
    """
    program = _MESH_SHOWN.sub("Mesh", str(problem.jaxpr))
    found = blake2b(program.encode(), digest_size=8)
    for value in problem.values:
        found.update(fingerprint(_plain_array(value)))
    return found.hexdigest()


def _plain_array(value: Any) -> Any:
    """A plain array, for the kind of array that JAX holds constants in."""
    return np.asarray(value) if isinstance(value, np.ndarray) else value


def is_spread(values: Iterable[object]) -> bool:
    """Tell whether some array has parts in other processes."""
    return not all(getattr(value, "is_fully_addressable", True) for value in values)

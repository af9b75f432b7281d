"""Gradients under the host driver: any store, progress, resuming after a crash."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend import core

from ..._errors import PlanError
from ..._plan import Plan
from ...driver import Progress, run
from ...storage import DurableStore, SnapshotStore
from ._alike import seen_before
from ._compile import Compiled, compile_program
from ._machine import JaxprMachine
from ._origins import Flags
from ._problem import Problem
from ._remembered import remembered
from ._settle import exactly, settle
from ._state import Settings
from ._trace import under_transformation


def run_hosted(
    problem: Problem,
    plan: Plan | None,
    store: SnapshotStore[Any] | None,
    progress: bool | Callable[[Progress], None],
    name: str,
) -> tuple[list[Any], list[Any]]:
    """Outputs and gradients, the host obeying the plan's actions one by one.

    Raises:
        PlanError: Under a transformation: there is no host in a compiled program.
    """
    if under_transformation(problem.values):
        raise PlanError(
            "`store` and `progress` need the host between the steps, and this call is "
            "inside `jax.jit` or another transformation. Call it outside, or leave "
            "both out."
        )
    if not problem.moves:
        return problem.still()
    offload = getattr(plan, "offload", None)
    if offload is not None and store is not None:
        raise PlanError(
            f"`store={store!r}` and the plan's `offload={offload!r}` say the same "
            "thing twice: where snapshots are. Pass one of them."
        )
    program = seen_before(problem.jaxpr, names=True)
    compiled, settings = _settled(program, problem.active, plan)
    machine = JaxprMachine(
        compiled,
        [*problem.values, *compiled.constants],
        [problem.one()],
        stage=settings.stage,
        on_host=settings.on_host or isinstance(store, DurableStore),
    )
    outcome = run(
        machine,
        # The tape was made for this stage length: the driver must not choose another.
        exactly(settings),
        store=store,
        progress=progress,
        label=f"{name} {_digest(problem)}",
    )
    return outcome.result


@remembered(32)
def _settled(
    jaxpr: core.ClosedJaxpr, active: Flags, plan: Plan | None
) -> tuple[Compiled, Settings]:
    compiled = compile_program(jaxpr, active)
    return compiled, settle(plan, compiled)


def _digest(problem: Problem) -> str:
    """What a durable store knows the run by: the program and its inputs."""
    found = hashlib.blake2b(str(problem.jaxpr).encode(), digest_size=8)
    for value in problem.values:
        if jax.dtypes.issubdtype(jax.typeof(value).dtype, jax.dtypes.extended):
            value = jax.random.key_data(value)
        found.update(np.asarray(value).tobytes())
    return found.hexdigest()

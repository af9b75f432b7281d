"""From a user's plan to the sizes of one sweep, and to blocks that are small enough.

A budget of bytes can be kept in several ways: stages of many steps, whose tape is
declared; stages of one step, reversed without a tape (`sweep/_tapeless`); the same with
long blocks cut into pieces (`codegen/_split_blocks`), finer and finer. Each way that
fits has a price (`sizing/_cost_model`), in the main how often it advances a step. The
first that advances each step at most once is taken, else the cheapest: cutting finer
than needed only adds registers.
`_fit_budget` does that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil

from jax.extend import core

from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.codegen._split_blocks import max_tape_bytes
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.jaxprs._avals import extents
from retape.engines.jaxpr.nest._chunk_sizes import LONGEST
from retape.engines.jaxpr.sizing._candidates import (
    candidates,
    cheapest_feasible,
    resolved,
)
from retape.engines.jaxpr.sizing._cost_model import step_kernels
from retape.engines.jaxpr.sizing._fit_budget import fit_budget, is_manual
from retape.engines.jaxpr.xla._standalone import Shardings
from retape.plan._base import Plan
from retape.plan._constructors import fixed_space, logarithmic

_LINE = 1 << 24
"""A program without a loop is cut if it tapes more, whatever the plan."""
_LONGER = 4
"""How many times longer a stage may be on an accelerator, if the plan says nothing."""
_STAGE = 320
"""Kernels of a stage that is long enough: eight times those that a turn takes."""
_PIECES = 64
"""Into how many pieces, about."""

Make = Callable[..., Compiled]
"""`compile_program`, or a test's variant of it."""


def default_plan() -> Plan:
    """The plan of a user who names none: memory and time both logarithmic."""
    return logarithmic()


def choose_settings(plan: Plan | None, compiled: Compiled) -> Settings:
    """Choose the number of snapshots and the stage length for this program as it is.

    Raises:
        PlanError: If the plan needs the number of steps and only a run can tell it.
        BudgetError: If a budget is below the least possible, which is named.
    """
    plan = plan or default_plan()
    if plan.budget is not None:
        return cheapest_feasible(plan, list(candidates(plan, compiled))).settings
    return resolved(plan, compiled)


def compile_for_plan(
    plan: Plan | None,
    jaxpr: core.ClosedJaxpr,
    active: Sequence[bool],
    make: Make,
    places: Shardings | None = None,
    *,
    provisional: bool = False,
) -> tuple[Compiled, Settings]:
    """Compile a program, its blocks cut as the plan needs, and choose the sizes.

    Args:
        plan: The user's plan.
        jaxpr: The program.
        active: For each input, whether a derivative by it is wanted.
        make: What compiles a program, with a limit `piece` for what blocks tape.
        places: Where the inputs are; a budget is for each device.
        provisional: Whether to go by estimates and refuse nothing, since the choice is
            made again when it is known where the inputs are.

    Raises:
        PlanError: If the plan needs the number of steps and only a run can tell it.
        BudgetError: If a budget is below the least possible, which is named.
    """
    plan = plan or default_plan()
    if plan.budget is not None:
        found = fit_budget(plan, jaxpr, active, make, places, provisional=provisional)
        return found[0], for_platform(plan, jaxpr, *found)
    compiled = make(jaxpr, active)
    if len(compiled.code) == 1 and max_tape_bytes(compiled.program) > _LINE:
        piece = max_tape_bytes(compiled.program) // _PIECES
        compiled = make(jaxpr, active, piece=piece)
        # How much is taped at a time the cuts say.
        plan = plan.with_stage(1)
    settings = choose_settings(plan, compiled)
    return compiled, for_platform(plan, jaxpr, compiled, settings)


def for_platform(
    plan: Plan, jaxpr: core.ClosedJaxpr, compiled: Compiled, settings: Settings
) -> Settings:
    """The settings for whom the plan's loops are.

    On an accelerator a stage is about what is done between two waits. Where the plan
    leaves it open a stage of cheap steps is therefore longer there, up to four times.

    Code for each device of a mesh keeps its loops: devices wait for one another in it,
    and none may run what another does not. So does code with sizes that are not known
    (`jax.export`), since what it costs is not known either.
    """
    if plan.loops != "device" or settings.plain or is_manual(jaxpr):
        return settings
    shapes = [v.shape for v in compiled.layout.avals.values()]
    if any(extents(shape) != tuple(shape) for shape in shapes):
        return settings
    if plan.stage is None and plan.budget is None and not plan.sizes_stages:
        enough = ceil(_STAGE / step_kernels(compiled))
        wished = min(LONGEST, _LONGER * settings.stage, enough)
        if settings.stage < wished:
            settings = choose_settings(plan.with_stage(wished), compiled)
    return replace(settings, device=True)


def plan_of_settings(settings: Settings) -> Plan:
    """The plan that asks for these very sizes, whatever the bytes."""
    return fixed_space(
        snapshots=settings.snapshots, stage=settings.stage, split=settings.split
    )

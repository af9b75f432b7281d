"""Diagnose a gradient that was just taken, and find its fault if there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from retape._errors import DeterminismError
from retape.driver._health import ROWS, Fault, FaultKind, Health
from retape.engines.jaxpr.api.health._find_operation import has_fraction
from retape.engines.jaxpr.api.health._find_step import (
    Bound,
    Step,
    find_step,
    find_value,
)
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.sweep._state import SweepCounts


def diagnose(
    compiled: Callable[[], Compiled],
    settings: Settings,
    operands: Sequence[Any],
    seeds: Sequence[Any],
    counts: SweepCounts,
    found: Sequence[Any],
    growth: float,
    *,
    is_finite: bool,
) -> Health:
    """The health of a gradient that was just taken.

    Args:
        compiled: Makes the program with its lines, if it is asked for.
        settings: What the plan fixed.
        operands: Inputs, then constants.
        seeds: Cotangents of the program's outputs.
        counts: What the sweep counted, with norms.
        found: The gradient's arrays.
        growth: How much larger than at the end of the run cotangents may become.
        is_finite: Whether the program's value is.

    Raises:
        DeterminismError: If the fault is not there when the program is run again.
    """
    steps = int(counts.steps)
    stages = -(-steps // settings.stage)
    per = -(-stages // ROWS)
    norms = tuple(float(n) for n in np.asarray(counts.norms)[: -(-stages // per)])
    bound = Bound(growth, float(counts.first_norm))
    ill = [row for row, norm in enumerate(norms) if bound.is_passed_by(norm)]
    fault = None
    if ill or not _are_finite(found):
        # The first on the way back. The step in it may be followed by one that mends
        # it, so that no stage ends with what it has made.
        rows = range(ill[-1], ill[-1] + 1) if ill else range(0)
        width = per * settings.stage
        within = range(rows.start * width, rows.stop * width)
        given = settings, operands, seeds, steps
        with jax.disable_jit(False):
            program = compiled()
            step = find_step(program, *given, bound, within, is_finite)
            # Operations that are compiled apart may round in another way.
            bound = replace(bound, growth=0.999 * growth)
            step = step or find_step(program, *given, bound, within, is_finite)
        if step is None:
            raise DeterminismError(
                "A gradient was NaN, infinite or too large, and it was sound when the "
                "program was run again to find the place. Let it do the same each "
                "time: what a callback returns depends on its arguments only."
            )
        fault = _fault(step, steps)
    elif not is_finite:
        with jax.disable_jit(False):
            step = find_value(compiled(), settings, operands, seeds, steps)
        fault = _fault(step or Step(0, np.nan, np.inf, True, None), steps)
        if step is None and not _are_finite(filter(has_fraction, operands)):
            fault = replace(fault, operation="argument")
    return Health(norms, per * settings.stage, fault)


def _are_finite(found: Iterable[Any]) -> bool:
    return all(np.all(np.isfinite(np.asarray(g, np.complex128))) for g in found)


def _fault(step: Step, steps: int) -> Fault:
    operation = step.operation
    kind: FaultKind = "growth" if np.isfinite(step.after) else "reverse"
    kind = "forward" if step.forward else kind
    return Fault(
        kind=kind,
        step=step.number,
        steps=steps,
        before=step.before,
        after=step.after,
        operation="" if operation is None else operation.name,
        line="" if operation is None else operation.line,
        text="" if operation is None else operation.text,
        operands="" if operation is None else operation.operands,
        variable="" if operation is None else operation.expression,
    )

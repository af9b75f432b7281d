"""Diagnose a gradient that was just taken, and find its fault if there is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from retape.driver import Fault, Health
from retape.driver._health import ROWS, FaultKind, grows
from retape.engines.jaxpr.api.health._find_step import Step, find_step
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
    """
    steps = int(counts.steps)
    stages = -(-steps // settings.stage)
    per = -(-stages // ROWS)
    norms = tuple(float(n) for n in np.asarray(counts.norms)[: -(-stages // per)])
    fault = None
    if _is_ill(norms, found, growth):
        with jax.disable_jit(False):
            step = find_step(compiled(), settings, operands, seeds, steps, growth)
        fault = None if step is None else _fault(step, steps)
    return Health(norms, per * settings.stage, fault)


def _is_ill(norms: Sequence[float], found: Sequence[Any], growth: float) -> bool:
    if not all(np.all(np.isfinite(np.asarray(g, np.complex128))) for g in found):
        return True
    return grows(norms, growth)


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
        variable="" if operation is None else operation.variable,
    )

"""The health of a gradient: how large cotangents are on the way, what spoils them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np

from retape.engines.jaxpr.api.health._find_step import Step, find_step
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.sweep._state import SweepCounts
from retape.engines.jaxpr.sweep._watch import ROWS

FaultKind = Literal["forward", "reverse", "growth"]

_BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True, eq=False)
class Fault:
    """What spoils a gradient.

    Attributes:
        kind: "forward" if the values of the program are not finite themselves;
            "reverse" if they are, and a derivative is not; "growth" if cotangents
            stay finite, but grow beyond the factor that was allowed.
        step: The step at which it happens, from 0: the first on the way back. Steps
            are counted as `explain` does: what is before a loop is one, and then each
            of its iterations.
        steps: Of the run.
        before: The largest cotangent of the program's state behind that step; NaN if
            the values themselves are not finite.
        after: The same before it, infinity if one is not finite.
        operation: JAX's name of the operation at fault, such as `sqrt`.
        line: `file:line (function)` where the program calls it.
        text: That line of source.
        operands: Types and ranges of what it was given.
    """

    kind: FaultKind
    step: int
    steps: int
    before: float
    after: float
    operation: str
    line: str
    text: str
    operands: str

    def __str__(self) -> str:
        what = {
            "forward": "values are not finite (forward)",
            "reverse": "values are finite, a derivative is not (reverse)",
            "growth": "cotangents grow without bound",
        }[self.kind]
        lines = [
            f"fault     {what}",
            f"step      {self.step} of {self.steps}: largest cotangent "
            f"{self.before:.3g} -> {self.after:.3g}",
            f"operation {self.operation} of {self.operands}",
            f"line      {self.line}",
        ]
        return "\n".join([*lines, f"          {self.text}"] if self.text else lines)


@dataclass(frozen=True, slots=True, eq=False)
class Health:
    """How a gradient came about; `str` of it is meant to be read.

    Attributes:
        norms: The largest cotangent of the program's state, from the first step to the
            last; infinity stands for what is not finite. At most 512 numbers: each is
            the largest of its steps.
        steps_per_norm: Steps for which each of them stands.
        fault: What is wrong, or `None`.
    """

    norms: tuple[float, ...]
    steps_per_norm: int
    fault: Fault | None

    def __str__(self) -> str:
        finite = [n for n in self.norms if np.isfinite(n) and n > 0]
        low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
        lines = [
            f"norms     {low:.3g} to {high:.3g}, first step to last",
            f"          {_curve(self.norms)}",
        ]
        return "\n".join([*lines, str(self.fault) if self.fault else "fault     none"])


def diagnose(
    compiled: Compiled,
    settings: Settings,
    operands: Sequence[Any],
    seeds: Sequence[Any],
    counts: SweepCounts,
    found: Sequence[Any],
    growth: float,
) -> Health:
    """The health of a gradient that was just taken.

    Args:
        compiled: The program.
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
            step = find_step(compiled, settings, operands, seeds, steps, growth)
        fault = None if step is None else _fault(step, steps)
    return Health(norms, per * settings.stage, fault)


def _is_ill(norms: Sequence[float], found: Sequence[Any], growth: float) -> bool:
    if not all(np.all(np.isfinite(np.asarray(g, np.complex128))) for g in found):
        return True
    nonzero = [n for n in reversed(norms) if n > 0]
    return bool(nonzero) and not max(nonzero) <= growth * nonzero[0]


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
    )


def _curve(norms: Sequence[float], width: int = 64) -> str:
    """The norms' logarithms, drawn in characters; `x` is not finite."""
    per = -(-len(norms) // width)
    most = [max(norms[i : i + per]) for i in range(0, len(norms), per)]
    logs = [np.log10(n) for n in most if 0 < n < np.inf]
    low, span = (min(logs), max(logs) - min(logs)) if logs else (0.0, 0.0)

    def drawn(norm: float) -> str:
        if not np.isfinite(norm):
            return "x"
        if norm == 0:
            return _BLOCKS[0]
        height = (np.log10(norm) - low) / span if span else 0.5
        return _BLOCKS[1 + round(7 * height)]

    return "".join(map(drawn, most))

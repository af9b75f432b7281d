"""Find the step of a run at which a gradient goes wrong.

The sweep is made once more, steered by the host, which looks at the cotangents after
each stage. The stage that spoils them is gone through step by step, and the step
operation by operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend import core

from retape.driver import run
from retape.engines.jaxpr.api.health._find_operation import (
    Operation,
    all_finite,
    forward_fault,
    reverse_fault,
)
from retape.engines.jaxpr.codegen._allocate import WRITTEN
from retape.engines.jaxpr.codegen._block_function import Code
from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.sizing._choose_settings import plan_of_settings
from retape.engines.jaxpr.sweep._forward import inputs
from retape.engines.jaxpr.sweep._machine import Capsule, Cotangent, JaxprMachine
from retape.engines.jaxpr.sweep._reverse import cotangent_out
from retape.engines.jaxpr.sweep._watch import largest


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A step that spoils the gradient, and the operation in it that does.

    Attributes:
        number: Of the step, from 0 at the start of the run.
        before: The largest cotangent that came to it.
        after: The largest that it passed on; infinity if one is not finite.
        forward: Whether it is values that the step spoils.
        operation: Of the step; `None` if none of its own is at fault.
    """

    number: int
    before: float
    after: float
    forward: bool
    operation: Operation | None


class Spoilt(Exception):
    """A stage after which the cotangents are not as they should be."""

    def __init__(
        self, capsule: Capsule, steps: int, cotangent: Cotangent | None, first: int
    ) -> None:
        super().__init__("a stage at fault")
        self.steps = steps
        self.capsule = capsule
        self.cotangent = cotangent
        self.first = first


class Watched:
    """A machine that stops at the first stage, in reverse, that spoils cotangents.

    Args:
        machine: What runs the stages.
        steps: Of a run.
        growth: How much larger than at first a register's cotangent may become.
    """

    def __init__(self, machine: JaxprMachine, steps: int, growth: float) -> None:
        self.machine = machine
        self.left = steps
        self.growth = growth
        self.first: float | None = None

    def start(self) -> Capsule:
        """The capsule before step 0."""
        return self.machine.start()

    def advance(self, capsule: Capsule, steps: int) -> tuple[Capsule, Any]:
        """Run steps without a tape."""
        return self.machine.advance(capsule, steps)

    def nbytes(self, capsule: Capsule) -> int:
        """The bytes of a capsule."""
        return self.machine.nbytes(capsule)

    def finish(self, cotangent: Cotangent) -> Any:
        """What the machine makes of the last cotangent."""
        return self.machine.finish(cotangent)

    def length(self) -> int | None:
        """Steps of a run, or `None` if only running it can tell."""
        return self.machine.length()

    def reverse(
        self, capsule: Capsule, steps: int, cotangent: Cotangent | None
    ) -> Cotangent:
        """Sweep a stage back, and look at what came out."""
        after = self.machine.reverse(capsule, steps, cotangent)
        self.left -= int(steps)
        if self.spoils(after):
            raise Spoilt(capsule, int(steps), cotangent, self.left)
        return after

    def spoils(self, cotangent: Cotangent) -> bool:
        """Whether one is not finite, or a register's has grown beyond the factor."""
        norm = self.norm(cotangent)
        if not np.isfinite(norm) or not np.isfinite(_largest(cotangent[0])):
            return True
        if self.first is None:
            self.first = norm or None
            return False
        return norm > self.growth * self.first

    def norm(self, cotangent: Cotangent) -> float:
        """The largest cotangent of a register."""
        pairs = zip(self.machine.active, cotangent[0], strict=True)
        return _largest([c for p, c in pairs if p.kind == "register"])


def find_step(
    compiled: Compiled,
    settings: Settings,
    operands: Sequence[Any],
    seeds: Sequence[Any],
    steps: int,
    growth: float,
) -> Step | None:
    """The first step, in reverse, that makes cotangents infinite, NaN or too large.

    Args:
        compiled: The program.
        settings: What the plan fixed.
        operands: Inputs, then constants.
        seeds: Cotangents of the active outputs.
        steps: Of a run.
        growth: How much larger than at first a cotangent may become.

    Returns:
        The step; `None` if there is none.
    """
    machine = JaxprMachine(compiled, operands, seeds, stage=settings.stage)
    watched = Watched(machine, steps, growth)
    try:
        run(watched, plan_of_settings(settings))
    except Spoilt as found:
        limit = watched.first, growth
        stage = found.steps
        one = JaxprMachine(compiled, operands, seeds, stage=1)
        return _within_stage(one, found, stage, limit)
    return None


def _within_stage(
    machine: JaxprMachine,
    found: Spoilt,
    steps: int,
    limit: tuple[float | None, float],
) -> Step | None:
    """The step of a stage that is at fault, from its end."""
    cotangent = found.cotangent
    watched = Watched(machine, 0, limit[1])
    watched.first = limit[0]
    for k in reversed(range(steps)):
        capsule = machine.advance(found.capsule, k)[0] if k else found.capsule
        after = machine.reverse(capsule, 1, cotangent)
        if watched.spoils(after):
            given = machine._seeded() if cotangent is None else cotangent[0]
            pairs = zip(machine.active, given, strict=True)
            before = _largest([c for p, c in pairs if p.kind == "register"])
            if not _is_sound(machine, capsule):
                # The values were spoilt before: where, tells a run forwards.
                return _first_bad_value(machine, found.first + k + 1, steps)
            forward, operation = _operation(machine, capsule, given)
            norm = watched.norm(after)
            norm = norm if np.isfinite(_largest(after[0])) else float("inf")
            return Step(found.first + k, before, norm, forward, operation)
        cotangent = after
    return None


def _operation(
    machine: JaxprMachine, capsule: Capsule, cotangents: Sequence[Any]
) -> tuple[bool, Operation | None]:
    """Whether values of a step are at fault, and the operation that is."""
    # The code counts in 64 bits whatever the user's setting.
    with jax.enable_x64(True):
        code, given, wanted = _code_at(machine, capsule, cotangents)
        outs = core.jaxpr_as_fun(code.ruled)(*given)
        made = [v for v, w in zip(outs, wanted, strict=True) if w is not None]
        if not all_finite(made):
            return True, forward_fault(code.ruled, given)
        return False, reverse_fault(code.ruled, given, wanted)


def _code_at(
    machine: JaxprMachine, capsule: Capsule, cotangents: Sequence[Any]
) -> tuple[Code, list[Any], list[Any]]:
    """The block that a capsule stands before, its inputs, its outputs' cotangents."""
    compiled = machine.compiled
    pc, *values = capsule
    state = {"pc": pc, WRITTEN: False, **dict(zip(machine.places, values, strict=True))}
    pairs = zip(machine.active, cotangents, strict=True)
    state |= {("d", p): c for p, c in pairs}
    label = next(k for k, c in compiled.code.items() if c.number == int(pc))
    code, taped = compiled.code[label], compiled.taped[label]
    where = compiled.layout.where
    counts = {v: state[where[v]] for v in code.counters()}
    given = inputs(compiled, code, machine.operands, state)
    wanted: list[Any] = [None] * len(code.ruled.out_avals)
    for i in taped.active_outs:
        wanted[i] = cotangent_out(compiled, code, i, counts, state)
    return code, given, wanted


# Values ---------------------------------------------------------------------------


def _first_bad_value(machine: JaxprMachine, steps: int, stride: int) -> Step | None:
    """The first step, forwards, that makes a value which is not finite."""
    capsule, done = machine.start(), 0
    while done < steps:
        count = min(stride, steps - done)
        after = machine.advance(capsule, count)[0]
        if not _is_sound(machine, after):
            return _within_stride(machine, capsule, done, count)
        capsule, done = after, done + count
    return None


def _within_stride(
    machine: JaxprMachine, capsule: Capsule, done: int, count: int
) -> Step | None:
    for k in range(done, done + count):
        after = machine.advance(capsule, 1)[0]
        if not _is_sound(machine, after):
            with jax.enable_x64(True):
                seeds = machine._seeded()
                code, given, _ = _code_at(machine, capsule, seeds)
                found = forward_fault(code.ruled, given)
            return Step(k, float("nan"), float("inf"), True, found)
        capsule = after
    return None


def _is_sound(machine: JaxprMachine, capsule: Capsule) -> bool:
    """Whether all registers that carry a derivative are finite."""
    pairs = zip(machine.places, capsule[1:], strict=True)
    active = set(machine.active)
    values = [v for p, v in pairs if p in active and p.kind == "register"]
    return all_finite(values)


def _largest(arrays: Sequence[Any]) -> float:
    with jax.enable_x64(True):
        return float(largest(list(arrays)))

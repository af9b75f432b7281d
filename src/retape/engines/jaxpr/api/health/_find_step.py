"""Find the step of a run at which a gradient goes wrong.

The sweep is made once more, steered by the host, which looks at the cotangents after
each stage. The stage that spoils them is gone through step by step, and the step
operation by operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
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
from retape.engines.jaxpr.sweep._reverse import cotangents_out
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


@dataclass(frozen=True, slots=True)
class Bound:
    """What a register's cotangent may not pass.

    Attributes:
        growth: How many times larger than at first it may become.
        first: The first, on the way back, that is not 0; 0 if there is none.
    """

    growth: float
    first: float

    def is_passed_by(self, norm: float) -> bool:
        """Tell whether it is not finite, or too large."""
        return not np.isfinite(norm) or norm > self.growth * self.first


_Spoilt = Callable[[JaxprMachine, Capsule], bool]


class _Found(Exception):
    """The step that was looked for."""

    def __init__(self, step: Step) -> None:
        super().__init__("a step at fault")
        self.step = step


class Watched:
    """A machine that stops at the first step, in reverse, that spoils cotangents.

    Args:
        machine: What runs the stages.
        one: What runs single steps of the same program.
        steps: Of a run.
        bound: For the cotangents.
        within: Steps that are looked at one by one; of other stages the last is.
        is_finite: Whether the program's value is: then infinity marks something.
    """

    def __init__(
        self,
        machine: JaxprMachine,
        one: JaxprMachine,
        steps: int,
        bound: Bound,
        within: range,
        is_finite: bool,
    ) -> None:
        self.machine = machine
        self.one = one
        self.left = steps
        self.bound = bound
        self.within = within
        self.is_finite = is_finite

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
        if self.spoils(after) or self.left in self.within:
            found = self.within_stage(capsule, int(steps), cotangent)
            if found is not None:
                raise _Found(found)
        return after

    def within_stage(
        self, capsule: Capsule, steps: int, cotangent: Cotangent | None
    ) -> Step | None:
        """The step of a stage that is at fault, from its end."""
        machine = self.one
        for k in reversed(range(steps)):
            before = machine.advance(capsule, k)[0] if k else capsule
            after = machine.reverse(before, 1, cotangent)
            if self.spoils(after):
                given = machine._seeded() if cotangent is None else cotangent[0]
                return self.step(before, given, after, self.left + k, steps)
            cotangent = after
        return None

    def step(
        self,
        capsule: Capsule,
        given: Sequence[Any],
        after: Cotangent,
        number: int,
        stride: int,
    ) -> Step | None:
        """A step that is at fault, before which a capsule is."""
        spoilt = _has_nan if self.is_finite else _is_not_finite
        if spoilt(self.one, capsule):
            # The values were spoilt before: where, tells a run forwards.
            return _first_bad_value(self.one, number + 1, stride, spoilt)
        forward, operation = _operation(self.one, capsule, given)
        norm = self.norm(after[0]) if _is_finite(after) else float("inf")
        return Step(number, self.norm(given), norm, forward, operation)

    def spoils(self, cotangent: Cotangent) -> bool:
        """Tell whether one is not finite, or a register's is too large."""
        return not _is_finite(cotangent) or self.bound.is_passed_by(
            self.norm(cotangent[0])
        )

    def norm(self, cotangents: Sequence[Any]) -> float:
        """The largest cotangent of a register."""
        pairs = zip(self.machine.active, cotangents, strict=True)
        return _largest([c for p, c in pairs if p.kind == "register"])


def find_step(
    compiled: Compiled,
    settings: Settings,
    operands: Sequence[Any],
    seeds: Sequence[Any],
    steps: int,
    bound: Bound,
    within: range,
    is_finite: bool,
) -> Step | None:
    """The first step, in reverse, that makes cotangents infinite, NaN or too large.

    Args:
        compiled: The program.
        settings: What the plan fixed.
        operands: Inputs, then constants.
        seeds: Cotangents of the active outputs.
        steps: Of a run.
        bound: For the cotangents.
        within: The steps among which it is, if that is known; empty if not.
        is_finite: Whether the program's value is.

    Returns:
        The step; `None` if there is none.
    """
    machine = JaxprMachine(compiled, operands, seeds, stage=settings.stage)
    one = machine  # which takes as long to compile as a gradient
    if settings.stage > 1:
        one = JaxprMachine(compiled, operands, seeds, stage=1)
    try:
        watched = Watched(machine, one, steps, bound, within, is_finite)
        run(watched, plan_of_settings(settings))
    except _Found as found:
        return found.step
    return None


def find_value(
    compiled: Compiled,
    settings: Settings,
    operands: Sequence[Any],
    seeds: Sequence[Any],
    steps: int,
) -> Step | None:
    """The first step that makes a value which is not finite, whatever its derivative.

    Returns:
        The step; `None` if no operation of a step is at fault.
    """
    one = JaxprMachine(compiled, operands, seeds, stage=1)
    found = _first_bad_value(one, steps, settings.stage, _has_bad_value)
    if found is not None and found.operation is not None:
        return found
    # The last step is not advanced: what it makes is the program's value.
    before = one.advance(one.start(), steps - 1)[0] if steps > 1 else one.start()
    with jax.enable_x64(True):
        code, given, _ = _code_at(one, before, one._seeded())
        operation = forward_fault(code.ruled, given)
    if operation is None:
        return None
    return Step(steps - 1, float("nan"), float("inf"), True, operation)


def _operation(
    machine: JaxprMachine, capsule: Capsule, cotangents: Sequence[Any]
) -> tuple[bool, Operation | None]:
    """Whether values of a step are at fault, and the operation that is."""
    # The code counts in 64 bits whatever the user's setting.
    with jax.enable_x64(True):
        code, given, wanted = _code_at(machine, capsule, cotangents)
        outs = core.jaxpr_as_fun(code.ruled)(*given)
        made = [v for v, w in zip(outs, wanted, strict=True) if w is not None]
        # Infinity may stand in the step's inputs, as in rows that are not written yet.
        forward = None if all_finite(made) else forward_fault(code.ruled, given)
        if forward is not None:
            return True, forward
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
    counts |= code.results(core.jaxpr_as_fun(code.jaxpr)(*given))[1]
    found = cotangents_out(compiled, taped, counts, state)
    for i, cotangent in zip(taped.active_outs, found, strict=True):
        wanted[i] = cotangent
    return code, given, wanted


# Values ---------------------------------------------------------------------------


def _first_bad_value(
    machine: JaxprMachine, steps: int, stride: int, spoilt: _Spoilt
) -> Step | None:
    """The first step, forwards, that makes a value which is not finite."""
    capsule, done = machine.start(), 0
    while done < steps:
        count = min(stride, steps - done)
        after = machine.advance(capsule, count)[0]
        if spoilt(machine, after):
            return _within_stride(machine, capsule, done, count, spoilt)
        capsule, done = after, done + count
    return None


def _within_stride(
    machine: JaxprMachine, capsule: Capsule, done: int, count: int, spoilt: _Spoilt
) -> Step | None:
    for k in range(done, done + count):
        after = machine.advance(capsule, 1)[0]
        if spoilt(machine, after):
            with jax.enable_x64(True):
                seeds = machine._seeded()
                code, given, _ = _code_at(machine, capsule, seeds)
                found = forward_fault(code.ruled, given)
            return Step(k, float("nan"), float("inf"), True, found)
        capsule = after
    return None


def _is_not_finite(machine: JaxprMachine, capsule: Capsule) -> bool:
    return not all_finite(_registers(machine, capsule))


def _has_bad_value(machine: JaxprMachine, capsule: Capsule) -> bool:
    """Of those without a derivative, too."""
    pairs = zip(machine.places, capsule[1:], strict=True)
    return not all_finite([v for p, v in pairs if p.kind == "register"])


def _has_nan(machine: JaxprMachine, capsule: Capsule) -> bool:
    return any(bool(jnp.any(jnp.isnan(v))) for v in _registers(machine, capsule))


def _registers(machine: JaxprMachine, capsule: Capsule) -> list[Any]:
    """All registers that carry a derivative."""
    pairs = zip(machine.places, capsule[1:], strict=True)
    active = set(machine.active)
    return [v for p, v in pairs if p in active and p.kind == "register"]


def _is_finite(cotangent: Cotangent) -> bool:
    return bool(np.isfinite(_largest(cotangent[0])))


def _largest(arrays: Sequence[Any]) -> float:
    with jax.enable_x64(True):
        return float(largest(list(arrays)))

"""Find the step of a run at which a gradient goes wrong.

The sweep is made once more, steered by the host, which looks at the cotangents after
each stage. The stage that spoils them is gone through step by step, and the step
operation by operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
from retape.engines.jaxpr.jaxprs._avals import is_inexact
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


class _Found(Exception):
    """The step that was looked for."""

    def __init__(self, step: Step) -> None:
        super().__init__("a step at fault")
        self.step = step


class _Watched(JaxprMachine):
    """A machine that stops at the first step, in reverse, that spoils cotangents.

    Args:
        one: What runs single steps of the same program.
        stage: The longest stage.
        steps: Of a run.
        bound: For the cotangents.
        within: Steps that are looked at one by one; of other stages the last is.
        is_finite: Whether the program's value is: then infinity marks something.
    """

    def __init__(
        self,
        one: JaxprMachine,
        stage: int,
        steps: int,
        bound: Bound,
        within: range,
        is_finite: bool,
    ) -> None:
        super().__init__(one.compiled, one.operands, one.seeds, stage=stage)
        self.one, self.left, self.bound = one, steps, bound
        self.within, self.is_finite = within, is_finite

    def reverse(
        self, capsule: Capsule, steps: int, cotangent: Cotangent | None
    ) -> Cotangent:
        """Sweep a stage back, and look at what came out."""
        after = super().reverse(capsule, steps, cotangent)
        self.left -= int(steps)
        if self.spoils(after) or self.left in self.within:
            self.look(capsule, int(steps), cotangent)
        return after

    def look(self, capsule: Capsule, steps: int, cotangent: Cotangent | None) -> None:
        """Stop at the step of a stage that is at fault, from its end, if one is."""
        for k in reversed(range(steps)):
            before = self.one.advance(capsule, k)[0] if k else capsule
            after = self.one.reverse(before, 1, cotangent)
            if self.spoils(after):
                given = self._seeded() if cotangent is None else cotangent[0]
                found = self.step(before, given, after, self.left + k, steps)
                if found is not None:
                    raise _Found(found)
                return
            cotangent = after

    def step(
        self,
        capsule: Capsule,
        given: Sequence[Any],
        after: Cotangent,
        number: int,
        stride: int,
    ) -> Step | None:
        """A step that is at fault, before which a capsule is."""
        bad = jnp.isnan if self.is_finite else _is_not_finite
        spoilt = partial(_is_spoilt, self.one, bad, set(self.active))
        if spoilt(capsule):
            # The values were spoilt before: where, tells a run forwards.
            return _first_bad_value(self.one, number + 1, stride, spoilt)
        forward, operation = _operation(self.one, capsule, given)
        finite = bool(np.isfinite(_largest(after[0])))
        norm = self.norm(after[0]) if finite else float("inf")
        return Step(number, self.norm(given), norm, forward, operation)

    def spoils(self, cotangent: Cotangent) -> bool:
        """Tell whether one is not finite, or a register's is too large."""
        norm = _largest(cotangent[0])
        return not np.isfinite(norm) or self.bound.is_passed_by(self.norm(cotangent[0]))

    def norm(self, cotangents: Sequence[Any]) -> float:
        """The largest cotangent of a register."""
        pairs = zip(self.active, cotangents, strict=True)
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
    one = JaxprMachine(compiled, operands, seeds, stage=1)
    watched = _Watched(one, settings.stage, steps, bound, within, is_finite)
    try:
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
    spoilt = partial(_is_spoilt, one, _is_not_finite, set(one.places))
    found = _first_bad_value(one, steps, settings.stage, spoilt)
    if found is not None and found.operation is not None:
        return found
    # The last step is not advanced: what it makes is the program's value.
    before = one.advance(one.start(), steps - 1)[0] if steps > 1 else one.start()
    found = _bad_value(one, before, steps - 1)
    return None if found.operation is None else found


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
    machine: JaxprMachine,
    steps: int,
    stride: int,
    spoilt: Callable[[Capsule], bool],
    begun: tuple[Capsule, int] | None = None,
) -> Step | None:
    """The first step, forwards, that makes a value which is not finite."""
    capsule, done = begun or (machine.start(), 0)
    while done < steps:
        count = min(stride, steps - done)
        after = machine.advance(capsule, count)[0]
        if spoilt(after):
            if count == 1:
                return _bad_value(machine, capsule, done)
            within = capsule, done
            return _first_bad_value(machine, done + count, 1, spoilt, within)
        capsule, done = after, done + count
    return None


def _bad_value(machine: JaxprMachine, capsule: Capsule, number: int) -> Step:
    """The step before which a capsule is, and what in it spoils values."""
    with jax.enable_x64(True):
        code, given, _ = _code_at(machine, capsule, machine._seeded())
        found = forward_fault(code.ruled, given)
    return Step(number, float("nan"), float("inf"), True, found)


def _is_not_finite(value: Any) -> Any:
    return jnp.logical_not(jnp.isfinite(value))


def _is_spoilt(
    machine: JaxprMachine, bad: Callable[[Any], Any], of: set[Any], capsule: Capsule
) -> bool:
    """Whether some of a capsule's registers, at these places, have a bad number."""
    pairs = zip(machine.places, capsule[1:], strict=True)
    values = [v for p, v in pairs if p in of and p.kind == "register"]
    return any(bool(jnp.any(bad(v))) for v in values if is_inexact(jax.typeof(v)))


def _largest(arrays: Sequence[Any]) -> float:
    with jax.enable_x64(True):
        return float(largest(list(arrays)))

"""The health of step functions: cotangents watched, and a fault traced to its line.

During the run only the size of each cotangent is looked at. If one is not as it should
be, the run is made again up to that step, whose function is then called on copies, line
by line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite, nan
from typing import Any

from retape._errors import DeterminismError
from retape.driver._actions import Planner
from retape.driver._blame import blame
from retape.driver._health import LOOKS, Fault, FaultKind, Health
from retape.driver._run import run
from retape.driver._step_machine import StepMachine
from retape.storage import copy_tree
from retape.storage._trees._magnitude import described, is_in_reach, largest


@dataclass(slots=True)
class CotangentWatch:
    """The cotangents of a run, and the largest before every `per`-th step.

    It takes two passes over memory for each. Where that would have to wait for a device
    only 32 of a run are looked at, and the result says so.

    Attributes:
        growth: How many times larger than the first they may become.
        steps: Of the run.
        per: Steps from one norm to the next.
        each: Whether the cotangents between them are looked at, too.
        norms: What was seen, from the last step to the first.
        first: The largest cotangent of the last state, or the first that is not 0.
        ill: The step at which not all was well, for the first time.
    """

    growth: float
    steps: int = -1
    per: int = 1
    each: bool = True
    norms: list[float] = field(default_factory=list[float])
    first: float = 0.0
    ill: int | None = None

    def __call__(self, step: int, cotangent: Any) -> None:
        """Look at the cotangent of the state before a step."""
        if self.steps < 0:
            self.steps, self.per = step, max(1, -(-step // LOOKS))
            self.each = is_in_reach(cotangent)
        elif step % self.per and (self.ill is not None or not self.each):
            return
        norm = largest(cotangent)
        if step % self.per == 0 and (step < self.steps or not self.steps):
            self.norms.append(norm)
        if self.ill is None and self.is_ill(norm):
            self.ill = step

    def is_ill(self, norm: float) -> bool:
        """Tell whether a cotangent is not finite, or larger than it may be."""
        self.first = self.first or norm
        return not isfinite(norm) or norm > self.growth * self.first


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of one of the user's functions, and what it returned."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    made: Any = None


class _Reached(Exception):
    """The step that spoils the cotangent, with all that was called for it."""

    def __init__(
        self, step: int, before: float, after: float, calls: list[_Call]
    ) -> None:
        super().__init__("a step at fault")
        self.step, self.before, self.after, self.calls = step, before, after, calls


def health_of(
    machine: StepMachine[Any, Any],
    watch: CotangentWatch,
    plan: Planner,
    steps: int,
    ends: object,
) -> Health:
    """The health of a run that is over.

    Args:
        machine: That ran.
        watch: That was shown the cotangents.
        plan: To run it again under, with snapshots in memory.
        steps: Of the run, of which an earlier process may have reversed some.
        ends: The last state, and the cost. Where they are not finite something is wrong
            that no cotangent shows, since the adjoint of the step does not read it.

    Raises:
        DeterminismError: If the functions do other things when run again.
    """
    watch.steps = steps
    if watch.ill is not None:
        fault = _fault(machine, plan, watch)
    else:
        fault = _forward_fault(machine, steps) if _is_not_finite(ends) else None
    looks = 1 if watch.each else watch.per
    return Health(tuple(reversed(watch.norms)), watch.per, fault, looks)


def _fault(
    machine: StepMachine[Any, Any], plan: Planner, watch: CotangentWatch
) -> Fault:
    found = _find(machine, plan, watch)
    steps, after = watch.steps, found.after
    if any(_is_not_finite(call.args[0]) for call in found.calls):
        bad = _forward_fault(machine, steps)
        if bad is not None:
            return bad
    kind: FaultKind = "growth" if isfinite(after) else "reverse"

    def spoils(value: Any) -> bool:
        size = largest(value)
        return size >= after * (1 - 1e-9) if kind == "growth" else not isfinite(size)

    # If it is but their sum that is too large, the adjoint of the step is named.
    call = next((call for call in found.calls if spoils(call.made)), found.calls[-1])
    return _told(kind, found.step, steps, [found.before, after], call, spoils)


def _forward_fault(machine: StepMachine[Any, Any], steps: int) -> Fault | None:
    bad = _first_bad_state(machine, steps)
    if bad is None:
        return None
    at, call = bad
    return _told("forward", at, steps, [nan, inf], call, _is_not_finite)


def _told(
    kind: FaultKind,
    step: int,
    steps: int,
    norms: Sequence[float],
    call: _Call,
    spoils: Callable[[Any], bool],
) -> Fault:
    operands = described(tuple(a for a in call.args if not isinstance(a, int)))
    place = blame(call.function, _copied(call.args), spoils)
    return Fault(
        kind=kind,
        step=step,
        steps=steps,
        before=norms[0],
        after=norms[1],
        operation=call.name,
        line=place.line,
        text=place.text,
        operands=operands,
        variable=place.variable,
    )


def _find(
    machine: StepMachine[Any, Any], plan: Planner, watch: CotangentWatch
) -> _Reached:
    """The first step in reverse that spoils the cotangent, with its calls."""
    of, calls, before = machine.program, list[_Call](), 0.0

    def noted(name: str, function: Any) -> Any:
        def note(*args: Any) -> Any:
            given = _copied(args)
            made = function(*args)
            calls.append(_Call(name, function, given, copy_tree(made)))
            return made

        return None if function is None else note

    def look(step: int, cotangent: Any) -> None:
        nonlocal before
        after = largest(cotangent)
        if watch.is_ill(after):
            raise _Reached(step, before, after, calls)
        before = after
        calls.clear()

    again = replace(
        of,
        observe=None,
        verify=None,
        reverse_step=noted("reverse_step", of.reverse_step),
        cost_gradient=noted("cost_gradient", of.cost_gradient),
    )
    seed = noted("seed", machine.seed)
    searching = StepMachine(again, machine.x0, machine.steps, seed)
    searching.watch = look
    try:
        run(searching, plan)
    except _Reached as found:
        return found
    raise DeterminismError(
        f"the cotangent at step {watch.ill} was NaN, infinite or too large, and it was "
        "sound when the functions were run again to find the place. They give other "
        "results each time: let them depend on their arguments only."
    )


def _first_bad_state(
    machine: StepMachine[Any, Any], steps: int
) -> tuple[int, _Call] | None:
    """The first step, forwards, that makes a state or a cost which is not finite."""
    cost: Any = machine.program.cost or _no_cost
    again = StepMachine(
        replace(machine.program, observe=None, done=None), machine.x0, None
    )
    again.turned = True
    capsule = again.start()
    if _is_not_finite(capsule.state):
        return None  # then that is how the program marks something
    for k in range(steps + 1):
        before = copy_tree(capsule.state)
        if _is_not_finite(cost(copy_tree(before), k)):
            return k, _Call("cost", cost, (before, k))
        if k == steps:
            break
        capsule, _ = again.advance(capsule, 1)
        if _is_not_finite(capsule.state):
            return k, _Call("step", machine.program.one_step, (before, k))
    return None


def _no_cost(state: object, k: int) -> float:
    return 0.0


def _is_not_finite(value: Any) -> bool:
    return not isfinite(largest(value))


def _copied(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(copy_tree(a) for a in args)

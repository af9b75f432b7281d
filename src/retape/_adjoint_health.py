"""The health of `retape.adjoint`: cotangents watched, and a fault traced to its line.

During the run only the size of each cotangent is looked at (`_adjoint_watch`). If one
is not as it should be, the run is made again up to that step, whose function is then
called on copies, line by line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import inf, isfinite, nan
from typing import Any

from retape._adjoint_watch import CotangentWatch
from retape._errors import DeterminismError
from retape.driver import run
from retape.driver._blame import blame
from retape.driver._health import Fault, FaultKind, Health
from retape.driver._step_machine import StepMachine
from retape.plan._base import Plan
from retape.storage import copy_tree
from retape.storage._trees._arithmetic import add_trees
from retape.storage._trees._magnitude import described, largest


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of one of the user's functions."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]


class _Reached(Exception):
    """The step that spoils the cotangent, with all that was called for it."""

    def __init__(
        self,
        step: int,
        before: float,
        after: float,
        calls: list[_Call],
        made: list[Any],
    ) -> None:
        super().__init__("a step at fault")
        self.step, self.before, self.after = step, before, after
        self.calls, self.made = calls, made


def health_of(
    machine: StepMachine[Any, Any],
    watch: CotangentWatch,
    plan: Plan,
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


def _fault(machine: StepMachine[Any, Any], plan: Plan, watch: CotangentWatch) -> Fault:
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

    pairs = zip(found.calls, found.made, strict=True)
    # If it is but their sum that is too large, the adjoint of the step is named.
    call = next((call for call, g in pairs if spoils(g)), found.calls[-1])
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
    machine: StepMachine[Any, Any], plan: Plan, watch: CotangentWatch
) -> _Reached:
    """The first step in reverse that spoils the cotangent, with its calls."""
    of, steps, ill = machine.program, watch.steps, watch.ill
    assert ill is not None
    # From the end: between two looks it may have been ill, and well again.
    window, calls, made, before = range(ill, steps + 1), list[_Call](), list[Any](), 0.0

    def noted(name: str, function: Any, last: bool) -> Any:
        def note(*args: Any) -> Any:
            nonlocal before
            # `seed` has no number: it is called once, for the state after all steps.
            step = steps if name == "seed" else args[1]
            if step not in window:
                return function(*args)
            if name == "reverse_step":
                before = largest(args[2])
            calls.append(_Call(name, function, _copied(args)))
            made.append(copy_tree(function(*args)))
            if last or (name == "cost_gradient" and step == steps and not machine.seed):
                after = largest(reduce(add_trees, made))
                if watch.is_ill(after):
                    raise _Reached(step, before, after, calls, made)
                result = made[-1]
                calls.clear()
                made.clear()
                return result
            return copy_tree(made[-1])

        return None if function is None else note

    again = replace(
        of,
        observe=None,
        reverse_step=noted("reverse_step", of.reverse_step, True),
        cost_gradient=noted("cost_gradient", of.cost_gradient, False),
    )
    try:
        seed = noted("seed", machine.seed, True)
        run(StepMachine(again, machine.x0, machine.steps, seed), plan)
    except _Reached as found:
        return found
    raise DeterminismError(
        f"the cotangent at step {ill} was NaN, infinite or too large, and it was "
        "sound when the functions were run again to find the place. They give other "
        "results each time: let them depend on their arguments only."
    )


def _first_bad_state(
    machine: StepMachine[Any, Any], steps: int
) -> tuple[int, _Call] | None:
    """The first step, forwards, that makes a state or a cost which is not finite."""
    cost: Any = machine.program.cost or (lambda state, k: 0.0)
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


def _is_not_finite(value: Any) -> bool:
    return not isfinite(largest(value))


def _copied(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(copy_tree(a) for a in args)

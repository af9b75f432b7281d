"""The step that spoils a cotangent, the function of it that does, and its line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, isfinite, nan
from typing import Any

from retape._diagnose._blame import blame
from retape._errors import DeterminismError
from retape.driver._health import Fault, FaultKind
from retape.driver._steps._program import Program
from retape.storage import copy_tree
from retape.storage._trees._magnitude import described, largest


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of one of the user's functions for a step, and what it returned."""

    name: str
    function: Callable[..., Any]
    step: int
    args: tuple[Any, ...]
    made: Any = None


class _Reached(Exception):
    """The step that spoils the cotangent, with all that was called for it."""

    def __init__(self, step: int, sizes: tuple[float, float], calls: list[_Call]):
        super().__init__("a step at fault")
        self.step, self.sizes, self.calls = step, sizes, calls


def fault_of(
    program: Program[Any, Any],
    x0: Any,
    seed: Any,
    steps: int,
    again: Callable[[Program[Any, Any], Any], object],
    is_ill: Callable[[float], bool],
) -> Fault:
    """What spoils a cotangent, found by running the program again.

    Args:
        program: That ran.
        x0: Its start state.
        seed: From the last state to its cotangent.
        steps: Of the run.
        again: Runs a program and a seed; gives the cotangent of the start state.
        is_ill: Tells it of the size of a cotangent.

    Raises:
        DeterminismError: If the functions do other things when run again.
    """
    found = _find(program, seed, steps, again, is_ill)
    before, after = found.sizes
    if any(_is_not_finite(call.args[0]) for call in found.calls):
        bad = forward_fault_of(program, x0, steps)
        if bad is not None:
            return bad
    kind: FaultKind = "growth" if isfinite(after) else "reverse"

    def spoils(value: Any) -> bool:
        size = largest(value)
        return size >= after * (1 - 1e-9) if kind == "growth" else not isfinite(size)

    # If it is but their sum that is too large, the adjoint of the step is named.
    call = next((call for call in found.calls if spoils(call.made)), found.calls[-1])
    return _told(kind, found.step, steps, (before, after), call, spoils)


def _find(
    program: Program[Any, Any],
    seed: Any,
    steps: int,
    again: Callable[[Program[Any, Any], Any], object],
    is_ill: Callable[[float], bool],
) -> _Reached:
    """The first step on the way back that spoils the cotangent, with its calls."""
    calls, before = list[_Call](), 0.0

    def noted(name: str, function: Any) -> Any:
        def note(*args: Any) -> Any:
            step = steps if name == "seed" else args[1]
            if name == "reverse_step":
                look(step + 1, args[2])
            given = _copied(args)
            made = function(*args)
            calls.append(_Call(name, function, step, given, copy_tree(made)))
            return made

        return None if function is None else note

    def look(step: int, cotangent: Any) -> None:
        nonlocal before
        after = largest(cotangent)
        # The cost of the state before it has been asked for already.
        ahead = [call for call in calls if call.step < step]
        if is_ill(after):
            raise _Reached(step, (before, after), [c for c in calls if c not in ahead])
        before, calls[:] = after, ahead

    searching = replace(
        program,
        observe=None,
        verify=None,
        reverse_step=noted("reverse_step", program.reverse_step),
        cost_gradient=noted("cost_gradient", program.cost_gradient),
    )
    try:
        look(0, again(searching, noted("seed", seed)))
    except _Reached as found:
        return found
    raise DeterminismError(
        "a cotangent was NaN, infinite or too large, and all were sound when the "
        "functions were run again to find the place. They give other results each "
        "time: let them depend on their arguments only."
    )


def forward_fault_of(program: Program[Any, Any], x0: Any, steps: int) -> Fault | None:
    """The first step, forwards, that makes a state or a cost which is not finite."""
    x, cost = copy_tree(x0), program.cost
    if _is_not_finite(x):
        return None  # then that is how the program marks something
    for k in range(steps + 1):
        before = copy_tree(x)
        if cost is not None and _is_not_finite(cost(copy_tree(x), k)):
            return _forward_fault(_Call("cost", cost, k, (before, k)), steps)
        if k == steps:
            break
        x = copy_tree(program.one_step(x, k))
        if _is_not_finite(x):
            return _forward_fault(
                _Call("step", program.one_step, k, (before, k)), steps
            )
    return None


def _forward_fault(call: _Call, steps: int) -> Fault:
    return _told("forward", call.step, steps, (nan, inf), call, _is_not_finite)


def _told(
    kind: FaultKind,
    step: int,
    steps: int,
    sizes: tuple[float, float],
    call: _Call,
    spoils: Callable[[Any], bool],
) -> Fault:
    operands = described(tuple(a for a in call.args if not isinstance(a, int)))
    place = blame(call.function, _copied(call.args), spoils)
    return Fault(
        kind=kind,
        step=step,
        steps=steps,
        before=sizes[0],
        after=sizes[1],
        operation=call.name,
        line=place.line,
        text=place.text,
        operands=operands,
        variable=place.variable,
    )


def _is_not_finite(value: Any) -> bool:
    return not isfinite(largest(value))


def _copied(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(copy_tree(a) for a in args)

"""`retape.diagnose`: a run whose cotangents are watched, and what spoils them.

That is a step, the function of it that does, and a line of that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, isfinite, nan
from typing import Any, TypeVar

from retape._adjoint import Adjoint, adjoint
from retape._diagnose._blame import blame
from retape._errors import DeterminismError
from retape._forked._machine import refuse_hidden
from retape.driver._health import LOOKS, Fault, FaultKind, Health, check_growth
from retape.driver._steps._program import Program, check_program
from retape.plan._base import Plan
from retape.plan._constructors import budgeted, fixed_space
from retape.storage import copy_tree
from retape.storage._base import is_durable
from retape.storage._disk import AnyStore, store_of
from retape.storage._trees._magnitude import described, is_in_reach, largest

X = TypeVar("X")
G = TypeVar("G")


def diagnose(
    program: Program[X, G],
    x0: X,
    *,
    seed: Callable[[X], G] | None = None,
    steps: int | None = None,
    plan: Plan | None = None,
    memory: float | str | None = None,
    store: AnyStore | None = None,
    key: str | int | None = None,
    growth: float = 1e6,
) -> Adjoint[X, G]:
    """Run a program as `retape.adjoint` does, and watch how large cotangents are.

    The step, the line and the variable that spoils them are named. Only if a cotangent
    is not as it should be, the functions are run again to find the step. Every step is
    looked at; where cotangents are arrays of JAX or on a device, 32 of them, evenly
    spread.

    Args:
        program: As in `retape.adjoint`, and so are all others.
        x0: The start state.
        seed: From the last state to its cotangent.
        steps: The number of steps.
        plan: How memory and time are traded.
        memory: Bytes, or a text such as "1 GB": instead of `plan`, for
            `plan=retape.within(memory)`.
        store: Where snapshots go. Of a run that was taken up again the cotangents of
            this process are looked at.
        key: What the run is.
        growth: How many times larger than `seed` returned it the cotangent may become
            before that counts as a fault.

    Returns:
        What `retape.adjoint` returns, with `health`.

    Raises:
        PlanError: If the arguments do not go together.
        StoreError: If `store` is none.
        DeterminismError: If what was found is not there when the functions are run
            again.

    Examples:
        >>> import numpy as np
        >>> import retape
        >>> root = retape.Program(
        ...     lambda x, k: np.sqrt(x), lambda x, k, g: g / (2 * np.sqrt(x))
        ... )
        >>> with np.errstate(all="ignore"):
        ...     found = retape.diagnose(root, np.zeros(2), seed=np.ones_like, steps=3)
        >>> found.health.fault.kind, found.health.fault.step
        ('reverse', 2)
    """
    plan, store = budgeted(plan, memory), store_of(store)
    refuse_hidden(program, "diagnose")
    check_program(program)
    check_growth(growth)
    watch = _Watch(growth)
    watched = _Watched(program.reverse_step)
    watched.look = watch
    found = adjoint(
        replace(program, reverse_step=watched),
        x0,
        seed=seed,
        steps=steps,
        plan=plan,
        store=store,
        key=key,
    )
    watch(0, found.cotangent)
    length, fault = found.report.length, None
    if watch.ill is not None:
        if is_durable(store):
            plan, store = fixed_space(snapshots=4), None

        search = _Search(length, watch.is_ill)
        again = search.around(program)
        how: dict[str, Any] = {"steps": steps, "plan": plan, "store": store}
        try:
            made = adjoint(again, x0, seed=search.noted("seed", seed), **how)
            search.look(0, made.cotangent)
        except _Reached:
            fault = _fault_of(program, x0, search)
        else:
            raise DeterminismError(
                "a cotangent was NaN, infinite or too large, and all were sound when "
                "the functions were run again to find the place. They give other "
                "results each time: let them depend on their arguments only."
            )
    elif not isfinite(largest((found.state, found.cost))):
        # No cotangent shows that, where the adjoint of the step does not read it.
        fault = _forward_fault_of(program, x0, length)
    looks = 1 if watch.each else watch.per
    health = Health(tuple(reversed(watch.norms)), watch.per, fault, looks)
    return replace(found, health=health)


class _Watched(partial[Any]):
    """A `reverse_step` whose cotangents are looked at when it is given them.

    It binds nothing, so a run in a store is known by the function inside.
    """

    look: Callable[[int, Any], None]

    def __call__(self, needed: Any, k: int, g: Any) -> Any:
        self.look(k + 1, g)
        return self.func(needed, k, g)


@dataclass(slots=True)
class _Watch:
    """The cotangents of a run, and the largest before every `per`-th step.

    It takes two passes over memory for each. Where that would have to wait for a device
    only 32 of a run are looked at, and the result says so.

    Attributes:
        growth: How many times larger than the first they may become.
        steps: Of the run, or of what this process reverses of it.
        at: The last step that was looked at.
        per: Steps from one norm to the next.
        each: Whether the cotangents between them are looked at, too.
        norms: What was seen, from the last step to the first.
        first: The largest cotangent of the last state, or the first that is not 0.
        ill: The step at which not all was well, for the first time.
    """

    growth: float
    steps: int = -1
    at: int = -1
    per: int = 1
    each: bool = True
    norms: list[float] = field(default_factory=list[float])
    first: float = 0.0
    ill: int | None = None

    def __call__(self, step: int, cotangent: Any) -> None:
        """Look at the cotangent of the state before a step."""
        if step > self.at:  # It begins, or it begins anew: another program was there.
            self.steps, self.per = step, max(1, -(-step // LOOKS))
            self.norms, self.first, self.ill = [], 0.0, None
            self.each = is_in_reach(cotangent)
        elif step % self.per and (self.ill is not None or not self.each):
            self.at = step
            return
        self.at = step
        norm = largest(cotangent)
        if step % self.per == 0 and (step < self.steps or not self.steps):
            self.norms.append(norm)
        if self.ill is None and self.is_ill(norm):
            self.ill = step

    def is_ill(self, norm: float) -> bool:
        """Tell whether a cotangent is not finite, or larger than it may be."""
        self.first = self.first or norm
        return not isfinite(norm) or norm > self.growth * self.first


# What spoils them --------------------------------------------------------------


class _Reached(Exception):
    """The step that spoils the cotangent has been reversed."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of one of the user's functions for a step, and what it returned."""

    name: str
    function: Callable[..., Any]
    step: int
    args: tuple[Any, ...]
    made: Any = None


@dataclass(slots=True)
class _Search:
    """A second run, up to the first step on the way back that spoils the cotangent.

    Attributes:
        steps: Of the run.
        is_ill: Tells it of the size of a cotangent.
        step: That step, in the end.
        sizes: Of the cotangent after it, and before it.
        calls: What was called for it.
    """

    steps: int
    is_ill: Callable[[float], bool]
    step: int = -1
    sizes: tuple[float, float] = (0.0, 0.0)
    calls: list[_Call] = field(default_factory=list[_Call])

    def around(self, program: Program[Any, Any]) -> Program[Any, Any]:
        """The program, whose calls on the way back are noted."""
        return replace(
            program,
            observe=None,
            verify=None,
            reverse_step=self.noted("reverse_step", program.reverse_step),
            cost_gradient=self.noted("cost_gradient", program.cost_gradient),
        )

    def noted(self, name: str, function: Any) -> Any:
        """A function of the user's whose calls are noted."""

        def note(*args: Any) -> Any:
            step = self.steps if name == "seed" else args[1]
            if name == "reverse_step":
                self.look(step + 1, args[2])
            given = _copied(args)
            made = function(*args)
            self.calls.append(_Call(name, function, step, given, copy_tree(made)))
            return made

        return None if function is None else note

    def look(self, step: int, cotangent: Any) -> None:
        """Look at the cotangent of the state before a step."""
        self.step, self.sizes = step, (self.sizes[1], largest(cotangent))
        # The cost of the state before it has been asked for already.
        ahead = [call for call in self.calls if call.step < step]
        if self.is_ill(self.sizes[1]):
            self.calls = [call for call in self.calls if call not in ahead]
            raise _Reached
        self.calls = ahead


def _fault_of(program: Program[Any, Any], x0: Any, found: _Search) -> Fault:
    """What spoils a cotangent, by what was called for the step that does."""
    if any(_is_not_finite(call.args[0]) for call in found.calls):
        bad = _forward_fault_of(program, x0, found.steps)
        if bad is not None:
            return bad
    after = found.sizes[1]
    kind: FaultKind = "growth" if isfinite(after) else "reverse"

    def spoils(value: Any) -> bool:
        size = largest(value)
        return size >= after * (1 - 1e-9) if kind == "growth" else not isfinite(size)

    # If it is but their sum that is too large, the adjoint of the step is named.
    call = next((call for call in found.calls if spoils(call.made)), found.calls[-1])
    return _told(kind, found.step, found.steps, found.sizes, call, spoils)


def _forward_fault_of(program: Program[Any, Any], x0: Any, steps: int) -> Fault | None:
    """The first step, forwards, that makes a state or a cost which is not finite."""
    x, cost = copy_tree(x0), program.cost
    if _is_not_finite(x):
        return None  # then that is how the program marks something
    for k in range(steps + 1):
        before, bad = copy_tree(x), None
        if cost is not None and _is_not_finite(cost(copy_tree(x), k)):
            bad = _Call("cost", cost, k, (before, k))
        elif k < steps:
            x = copy_tree(program.one_step(x, k))
            if _is_not_finite(x):
                bad = _Call("step", program.one_step, k, (before, k))
        if bad is not None:
            return _told("forward", k, steps, (nan, inf), bad, _is_not_finite)
    return None


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

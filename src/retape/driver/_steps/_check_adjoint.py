"""Is this the adjoint of that step? The dot-product test and the Taylor test.

A wrong adjoint gives no error, only a wrong gradient. With A the derivative of a step
at a state, v any direction and w any cotangent, <w, A v> = <A* w, v>. The left side is
a difference of two steps, or a tangent model; the right side is `reverse_step`. That is
tried step by step, so the step that is wrong is named. Of the whole run the remainder

    R(h) = |J(x0 + h v) - J(x0) - h <g, v>|

falls like h^2 if g is the gradient of J, and like h if it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log2
from typing import Any, TypeVar

import numpy as np

from retape._arguments import whole
from retape._errors import MachineError, PlanError
from retape.driver._run import run
from retape.driver._steps._cotangent_form import CotangentForm
from retape.driver._steps._directions import (
    direction,
    embedded,
    moved,
    own_part,
    own_product,
    product,
    slope,
)
from retape.driver._steps._program import Program, check_functions, check_program
from retape.driver._steps._step_machine import StepMachine
from retape.schedule import Schedule
from retape.storage import copy_tree
from retape.storage._trees._arithmetic import map_leaves, precision
from retape.storage._trees._form import fits, form_of

X = TypeVar("X")
G = TypeVar("G")


@dataclass(frozen=True, slots=True)
class AdjointCheck:
    """The result of `retape.check_adjoint`.

    Attributes:
        errors: For each step that was tried |<w, A v> - <A* w, v>| relative to the
            norms of w and A v.
        tolerance: The most that rounding and the differences explain.
        remainders: (h, R(h)) of the Taylor test, h falling by halves.
        order: The order at which R falls, 2 for a gradient; `None` where all remainders
            are rounding errors, as those of a linear run are.
    """

    errors: dict[int, float]
    tolerance: float
    remainders: tuple[tuple[float, float], ...]
    order: float | None

    @property
    def worst_step(self) -> int | None:
        """The step of the largest error; `None` for a run of no steps."""
        return max(self.errors, key=lambda k: self.errors[k], default=None)

    @property
    def ok(self) -> bool:
        """Tell whether both tests are passed."""
        each = all(error <= self.tolerance for error in self.errors.values())
        return each and (self.order is None or self.order > 1.7)

    def __str__(self) -> str:
        worst = self.worst_step
        lines: list[str] = []
        if worst is not None:
            wrong = [
                k for k, error in self.errors.items() if not error <= self.tolerance
            ]
            lines.append(
                f"dot-product test of {len(self.errors)} steps: the worst error is "
                f"{self.errors[worst]:.1e} (step {worst}), at most "
                f"{self.tolerance:.1e} is rounding"
                + (
                    f"; wrong in {len(wrong)}, first in step {wrong[0]}"
                    if wrong
                    else ""
                )
            )
        order = "rounding errors" if self.order is None else f"order {self.order:.2f}"
        lines.append(f"Taylor test: {order} (2 is right, 1 is not a gradient)")
        lines += [f"  h = {h:.1e}   R = {rest:.3e}" for h, rest in self.remainders]
        return "\n".join(lines)


def check_adjoint(
    program: Program[X, G],
    x0: X,
    *,
    steps: int,
    value: Callable[[X], Any] | None = None,
    seed: Callable[[X], G] | None = None,
    tangent: Callable[[X, int, X], X] | None = None,
    tried: int = 20,
) -> AdjointCheck:
    """Test an adjoint: each step by dot products, the whole run by Taylor's theorem.

    States are trees with numbers in them;
    integers and all else are left as they are. Gradients of parameters that accumulate
    in the cotangent beside the state's may be there: products are taken over the parts
    that the state has. To have them tested as well, let parameters be part of a state.

    Args:
        program: As in `retape.adjoint`.
        x0: The start state.
        steps: The length of the run; ten are enough to find most errors.
        value: From the last state to the number that is differentiated. Without it a
            random linear function of the last state is.
        seed: The cotangent of the last state, the gradient of `value`.
        tangent: From the state before step k, k and a direction to the derivative of
            the step along it. Without it differences of two steps are taken, which are
            good to about 10 of 16 digits.
        tried: How many steps are tried, evenly spread.

    Returns:
        What was found: `ok` says whether it is an adjoint, printing it says more.

    Raises:
        PlanError: If arguments do not go together, or a function cannot be called with
            what it is given.
        MachineError: If a function returns what has not the form of a state or of a
            cotangent.
        StoreError: If a state or a cotangent is no tree of arrays and numbers.
        MissingPackageError: If NumPy is not installed.

    Examples:
        >>> import numpy as np
        >>> import retape
        >>> def step(x, k):
        ...     return x + 0.1 * np.sin(x)
        >>> right = retape.Program(step, lambda x, k, g: g + 0.1 * np.cos(x) * g)
        >>> retape.check_adjoint(right, np.ones(3), steps=5).ok
        True
        >>> wrong = retape.Program(step, lambda x, k, g: g + 0.1 * g)
        >>> found = retape.check_adjoint(wrong, np.ones(3), steps=5)
        >>> found.ok, round(found.order)
        (False, 1)
    """
    check_program(program)
    passed = {"seed": seed, "tangent": tangent, "value": value}
    check_functions(passed, "retape.check_adjoint", ())
    if (value is None) != (seed is None):
        raise PlanError(
            f"`value={value}` and `seed={seed}`: pass both, a number of the last state "
            "and its gradient, or neither."
        )
    program = replace(program, done=None, observe=None)
    step, cost = program.one_step, program.cost
    length, rng = whole("steps", steps, 0), np.random.default_rng(0)
    each = _spread(length, tried)
    states, last = _states(program, x0, length, each)
    weight = direction(last, rng)
    like = _like(weight, last, seed, program.cost_gradient, length)
    _check_fits(like, last, length - 1)

    def begin(x: Any) -> Any:
        return seed(x) if seed else embedded(copy_tree(weight), like)

    epsilon = precision(x0)

    def total(x: Any) -> float:
        """J of a start state."""
        x, found = copy_tree(x), 0.0
        for k in range(length):
            found += float(cost(copy_tree(x), k)) if cost else 0.0
            x = copy_tree(step(x, k))
        found += float(cost(copy_tree(x), length)) if cost else 0.0
        return found + float(value(x) if value else product(weight, x))

    along = direction(x0, rng)
    gradient = _gradient(program, begin, x0, length)
    remainders, order = _taylor(total, x0, along, own_product(gradient, along), epsilon)
    trial = _Trial(program, begin, tangent, rng, epsilon)
    errors = {k: trial.error(states[k], k) for k in each}
    tolerance = epsilon**0.75 if tangent else 10 * epsilon**0.5
    return AdjointCheck(errors, tolerance, remainders, order)


def _spread(length: int, tried: int) -> list[int]:
    """The steps that are tried."""
    if length <= tried:
        return list(range(length))
    return sorted({i * length // max(1, tried) for i in range(tried)})


def _states(
    program: Program[Any, Any], x0: Any, length: int, each: list[int]
) -> tuple[dict[int, Any], Any]:
    """The states before some steps, and the last one."""
    alone = replace(program, tape=None, cost=None, cost_gradient=None)
    plain: StepMachine[Any, Any] = StepMachine(alone, x0, length)
    capsule, kept, wanted = plain.start(), dict[int, Any](), set(each)
    for k in range(length):
        if k in wanted:
            kept[k] = plain.copy_capsule(capsule).state
        capsule, _ = plain.advance(capsule, 1)
    return kept, plain.copy_capsule(capsule).state


def _like(
    weight: Any,
    last: Any,
    seed: Callable[[Any], Any] | None,
    cost_gradient: Callable[[Any, int], Any] | None,
    length: int,
) -> Any:
    """A cotangent of the form that the user's functions give theirs."""
    if seed is not None:
        return copy_tree(seed(copy_tree(last)))
    if cost_gradient is None:
        return weight
    found = copy_tree(cost_gradient(copy_tree(last), length))
    return weight if found is None or type(found) is float else found


def _gradient(
    of: Program[Any, Any], seed: Callable[[Any], Any], x0: Any, length: int
) -> Any:
    """The cotangent of x0; what `reverse_step` misses in a cotangent is explained."""
    machine: StepMachine[Any, Any] = StepMachine(of, x0, length, seed)
    schedule = Schedule(length, min(20, max(1, length)))
    try:
        return run(machine, schedule).result.cotangent
    except (KeyError, IndexError, ValueError, TypeError) as error:
        error.add_note(
            "`check_adjoint` begins with the cotangent that `seed` or `cost_gradient` "
            "returns; without them, with one of the state's form. Where gradients of "
            "parameters accumulate beside it, pass `value` and `seed`, or a program "
            "with `cost` and `cost_gradient`."
        )
        raise


@dataclass(frozen=True, slots=True)
class _Trial:
    """The dot-product test of single steps.

    Attributes:
        of: The program.
        seed: The cotangent of a state.
        tangent: The derivative of a step, if there is a function for it.
        rng: Where directions come from.
        epsilon: The precision of the state's numbers.
    """

    of: Program[Any, Any]
    seed: Callable[[Any], Any]
    tangent: Callable[[Any, int, Any], Any] | None
    rng: np.random.Generator
    epsilon: float

    def error(self, x: Any, k: int) -> float:
        """|<w, A v> - <A* w, v>| of a step, relative to the norms of w and A v."""
        of, after = self.of, copy_tree(self.of.one_step(copy_tree(x), k))
        v = direction(x, self.rng)
        along = self._along(x, k, v, after)
        needed = of.tape(copy_tree(x), k)[1] if of.tape else copy_tree(x)
        w = direction(self.seed(copy_tree(after)), self.rng)
        _check_fits(w, after, k)
        form = CotangentForm()
        form.begin(w, after)
        back = of.reverse_step(copy_tree(needed), k, copy_tree(w))
        form.follow(back, form_of(x), "reverse_step", k)
        one, other = own_product(w, along), own_product(back, v)
        own = own_part(w, after)
        size = product(own, own) ** 0.5 * product(along, along) ** 0.5
        return abs(one - other) / size if size else abs(one - other)

    def _along(self, x: Any, k: int, v: Any, after: Any) -> Any:
        """The derivative of a step along v."""
        if self.tangent is not None:
            found = copy_tree(self.tangent(copy_tree(x), k, copy_tree(v)))
            what = "`tangent` returned"
        else:
            h = self.epsilon ** (1 / 3)
            ahead = copy_tree(self.of.one_step(moved(x, v, h), k))
            behind = copy_tree(self.of.one_step(moved(x, v, -h), k))
            if form_of(ahead) != form_of(behind):
                raise MachineError(
                    f"the states after step {k} differ in form although the states "
                    "before it are close together, so they cannot be subtracted. Pass "
                    "`tangent=`, the derivative of `step`."
                )
            found, what = map_leaves(slope(h), ahead, behind), "`step` returned"
        if not fits(form_of(found), form_of(after)):
            raise MachineError(
                f"{what} for step {k} a tree whose form differs from that of the "
                "state after the step. Return a tree with the shapes of that state."
            )
        return found


def _check_fits(w: Any, after: Any, k: int) -> None:
    """Refuse a cotangent whose product with a direction is not known."""
    if not fits(form_of(w), form_of(after)):
        raise MachineError(
            f"`seed` returns a `{type(w).__name__}` whose shapes differ from those "
            f"of the state after step {k}, a `{type(after).__name__}`, so that their "
            "product is unknown. Return a cotangent with the shapes of the state."
        )


def _taylor(
    total: Callable[[Any], float], x0: Any, v: Any, slope: float, epsilon: float
) -> tuple[tuple[tuple[float, float], ...], float | None]:
    """The remainders for falling h, and the order at which they fall."""
    base, found = total(x0), list[tuple[float, float]]()
    orders: list[float] = []
    for i in range(6):
        h = epsilon**0.125 * 2.0**-i
        ahead = total(moved(x0, v, h))
        found.append((h, abs(ahead - base - h * slope)))
        # Some digits of J are lost in a run, and all of them in the difference.
        noise = 1e3 * epsilon * (abs(ahead) + abs(base) + h * abs(slope))
        if i and found[-1][1] > noise and found[-2][1] > noise:
            orders.append(log2(found[-2][1] / found[-1][1]))
    return tuple(found), orders[-1] if orders else None

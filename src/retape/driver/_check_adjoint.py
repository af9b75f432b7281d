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
from dataclasses import dataclass
from importlib import import_module
from math import log2
from typing import Any, Protocol, TypeVar, cast

from retape._errors import PlanError
from retape.driver._drive import run
from retape.driver._step_machine import StepFunctions, StepMachine
from retape.schedule import Schedule
from retape.schedule._whole import whole
from retape.storage import copy_tree
from retape.storage._codec import need_numpy
from retape.storage._trees._arithmetic import map_leaves, precision

X = TypeVar("X")
G = TypeVar("G")


class Random(Protocol):
    """A source of random directions, such as `numpy.random.default_rng(0)`."""

    def standard_normal(self, size: Any = ...) -> Any: ...


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
    step: Callable[[X, int], X],
    reverse_step: Callable[[Any, int, G], G],
    x0: X,
    *,
    steps: int,
    value: Callable[[X], Any] | None = None,
    seed: Callable[[X], G] | None = None,
    tape: Callable[[X, int], tuple[X, Any]] | None = None,
    cost: Callable[[X, int], Any] | None = None,
    cost_gradient: Callable[[X, int], G] | None = None,
    tangent: Callable[[X, int, X], X] | None = None,
    inner: Callable[[G, X], float] | None = None,
    tried: int = 20,
    random: Random | None = None,
) -> AdjointCheck:
    """Test an adjoint: each step by dot products, the whole run by Taylor's theorem.

    The functions are those of `retape.adjoint`. States are trees with numbers in them;
    integers and all else are left as they are. To have the gradient of parameters
    tested, let them be a part of the state.

    Args:
        step: From the state before step k, and k, to the state after it.
        reverse_step: Its adjoint.
        x0: The start state.
        steps: The length of the run; ten are enough to find most errors.
        value: From the last state to the number that is differentiated. Without it a
            random linear function of the last state is.
        seed: The cotangent of the last state, the gradient of `value`.
        tape: As in `retape.adjoint`.
        cost: As in `retape.adjoint`.
        cost_gradient: As in `retape.adjoint`.
        tangent: From the state before step k, k and a direction to the derivative of
            the step along it. Without it differences of two steps are taken, which are
            good to about 10 of 16 digits.
        inner: The product of a cotangent with a direction of the state. By default the
            sum over all numbers of Re(conj(g) v), for cotangents of the state's shape.
        tried: How many steps are tried, evenly spread.
        random: Where directions come from; by default `numpy.random.default_rng(0)`.

    Returns:
        What was found: `ok` says whether it is an adjoint, printing it says more.

    Raises:
        PlanError: If arguments do not go together.
        MachineError: If a function does not accept the arguments that it is given.
        StoreError: If a state or a cotangent is no tree of arrays and numbers.
        MissingPackageError: If NumPy is not installed.

    Examples:
        >>> import numpy as np
        >>> import retape
        >>> def step(x, k):
        ...     return x + 0.1 * np.sin(x)
        >>> right = retape.check_adjoint(
        ...     step, lambda x, k, g: g + 0.1 * np.cos(x) * g, np.ones(3), steps=5
        ... )
        >>> right.ok
        True
        >>> wrong = retape.check_adjoint(
        ...     step, lambda x, k, g: g + 0.1 * g, np.ones(3), steps=5
        ... )
        >>> wrong.ok, round(wrong.order)
        (False, 1)
    """
    if (value is None) != (seed is None):
        raise PlanError(
            f"`value={value}` and `seed={seed}`: pass both, a number of the last state "
            "and its gradient, or neither."
        )
    if (cost is None) != (cost_gradient is None):
        raise PlanError(
            f"`cost={cost}` and `cost_gradient={cost_gradient}`: pass both or neither."
        )
    length, rng = whole("steps", steps), random or _default_random()
    dot = inner or cast("Callable[[Any, Any], float]", product)
    states = [copy_tree(x0)]
    for k in range(length):
        states.append(copy_tree(step(copy_tree(states[-1]), k)))
    weight = _direction(states[-1], rng)
    functions: StepFunctions[Any, Any] = StepFunctions(
        step,
        reverse_step,
        seed if seed is not None else lambda x: copy_tree(weight),
        tape=tape,
        cost=cost,
        cost_gradient=cost_gradient,
    )
    epsilon = precision(x0)

    def total(x: Any) -> float:
        """J of a start state."""
        x, found = copy_tree(x), 0.0
        for k in range(length):
            found += float(cost(copy_tree(x), k)) if cost else 0.0
            x = copy_tree(step(x, k))
        found += float(cost(copy_tree(x), length)) if cost else 0.0
        return found + float(value(x) if value else product(weight, x))

    along = _direction(x0, rng)
    machine: StepMachine[Any, Any] = StepMachine(functions, x0, length)
    gradient = run(machine, Schedule(length, min(20, max(1, length)))).result.cotangent
    slope = dot(gradient, along)
    remainders, order = _taylor(total, x0, along, slope, epsilon)
    spread = sorted(
        {i * length // max(1, tried) for i in range(tried)} if length else ()
    )
    errors = {
        k: _dot_error(functions, tangent, states[k], k, dot, rng, epsilon)
        for k in (spread if length > tried else range(length))
    }
    tolerance = epsilon**0.75 if tangent else 10 * epsilon**0.5
    return AdjointCheck(errors, tolerance, remainders, order)


def product(one: Any, other: Any) -> float:
    """The sum over all numbers of two trees of Re(conj(a) b)."""
    found = 0.0

    def add(a: Any, b: Any) -> Any:
        nonlocal found
        terms = a.conjugate() * b
        found += float((terms.sum() if hasattr(terms, "sum") else terms).real)
        return a

    map_leaves(add, one, other)
    return found


def _dot_error(
    of: StepFunctions[Any, Any],
    tangent: Callable[[Any, int, Any], Any] | None,
    x: Any,
    k: int,
    dot: Callable[[Any, Any], float],
    rng: Random,
    epsilon: float,
) -> float:
    """|<w, A v> - <A* w, v>| of one step, relative to the norms of w and A v."""
    v, h = _direction(x, rng), epsilon ** (1 / 3)
    if tangent is not None:
        moved = tangent(copy_tree(x), k, copy_tree(v))
    else:
        ahead = copy_tree(of.step(_moved(x, v, h), k))
        behind = of.step(_moved(x, v, -h), k)
        moved = map_leaves(_slope(h), ahead, behind)
    needed = of.tape(copy_tree(x), k)[1] if of.tape else copy_tree(x)
    assert of.seed is not None
    w = _direction(of.seed(copy_tree(x)), rng)
    back = of.reverse_step(copy_tree(needed), k, copy_tree(w))
    one, other = dot(w, moved), dot(back, v)
    size = product(w, w) ** 0.5 * product(moved, moved) ** 0.5
    return abs(one - other) / size if size else abs(one - other)


def _taylor(
    total: Callable[[Any], float], x0: Any, v: Any, slope: float, epsilon: float
) -> tuple[tuple[tuple[float, float], ...], float | None]:
    """The remainders for falling h, and the order at which they fall."""
    base, found = total(x0), list[tuple[float, float]]()
    orders: list[float] = []
    for i in range(6):
        h = epsilon**0.125 * 2.0**-i
        ahead = total(_moved(x0, v, h))
        found.append((h, abs(ahead - base - h * slope)))
        # Some digits of J are lost in a run, and all of them in the difference.
        noise = 1e3 * epsilon * (abs(ahead) + abs(base) + h * abs(slope))
        if i and found[-1][1] > noise and found[-2][1] > noise:
            orders.append(log2(found[-2][1] / found[-1][1]))
    return tuple(found), orders[-1] if orders else None


def _moved(x: Any, v: Any, h: float) -> Any:
    """x + h v."""

    def move(a: Any, b: Any) -> Any:
        return a + h * b

    return map_leaves(move, copy_tree(x), v)


def _slope(h: float) -> Callable[[Any, Any], Any]:
    """The central difference of two numbers or arrays at a distance of 2h."""

    def slope(ahead: Any, behind: Any) -> Any:
        return (ahead - behind) / (2 * h)

    return slope


def _direction(like: Any, rng: Random) -> Any:
    """Normal numbers in the place of those of a tree, of about their size."""

    def drawn(a: Any) -> Any:
        made = rng.standard_normal(getattr(a, "shape", None)) * (1 + abs(a))
        kind: Any = getattr(a, "dtype", None)
        if kind is None:
            return complex(made, 0.5 * made) if type(a) is complex else float(made)
        return (made * (1 + 0.5j) if kind.kind == "c" else made).astype(kind)

    return map_leaves(drawn, like)


def _default_random() -> Random:
    need_numpy(
        "`check_adjoint` without `random=`", "draws with NumPy", "pass `random=`"
    )
    return import_module("numpy").random.default_rng(0)

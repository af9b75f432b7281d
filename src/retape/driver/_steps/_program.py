"""A step function and its adjoint in one object, and how such functions are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from inspect import Parameter, signature
from typing import Any, Generic, TypeVar

from retape._errors import MachineError, PlanError
from retape.driver._steps._cotangent_form import looked_at
from retape.driver._verify import Verify, check_verify
from retape.storage._trees._form import form_of, shape_of

X = TypeVar("X")
G = TypeVar("G")


@dataclass(frozen=True, slots=True)
class OneOfMany(Generic[X]):
    """A step by a function that makes many."""

    many: Callable[[X, int, int], X]

    def __call__(self, x: X, k: int) -> X:
        """The state after step k."""
        return self.many(x, k, k + 1)


@dataclass(frozen=True, slots=True)
class Program(Generic[X, G]):
    """A simulation and its adjoint: what `adjoint`, `forward` and the others run.

    States, cotangents and tapes are arrays of NumPy or JAX, tensors of PyTorch, numbers
    or trees of them: tuples, named tuples, lists, dictionaries with string keys,
    dataclasses. Tensors are handed on without autograd's graph, which would keep every
    state: a `reverse_step` that needs one builds it for its step. Objects of other
    classes are states too if they have `copy`, `nbytes`, `to_arrays`, `from_arrays`, or
    their class is registered by `retape.register_state`.

    The functions may use memory as they like: change their argument, return it or a
    buffer that they use again, in Python, C or Fortran. What is kept of a run is
    copied, so nothing of that reaches the gradient, the start state or the result.

    Args:
        step: From the state before step k, and k, to the state after it. It may be
            `None` if there is `many`.
        reverse_step: From the state before step k, k and the cotangent of the state
            after it, to the cotangent of the state before it. Gradients of parameters
            are accumulated in the cotangent.
        tape: From the state before step k, and k, to the state after it and all that
            the adjoint of the step needs, a tree of arrays; `reverse_step` is given
            this in the place of the state. Without it a step's tape is the state
            before it. It is called once more, for step 0, to measure a tape.
        many: From the state before step k0, k0 and k1 to the state before step k1:
            many steps at a call, as operators run them. It is called where steps are
            advanced.
        done: Whether a state is the last one, where the number of steps is not known.
        observe: Called with a copy of each state and its k = 0, ..., n, once and in
            order, in the first pass. Of a run that was killed the states since the last
            snapshot are shown again.
        cost: From the state before step k, and k, to a term of the objective that is
            summed over all states, k = 0, ..., n. The sum is in the result.
        cost_gradient: Its derivative: the cotangent of the same state. It is added to
            what `seed` and `reverse_step` return.
        hidden: Whether the functions have state that nobody can copy (COMMON blocks,
            static variables, objects): a snapshot is then a forked process that waits.
            `step` is run in it, and `seed`, `cost` and `reverse_step`, with the hidden
            state before step k; states may be `None`. Cotangents pass between
            processes, so `pickle` must take them. POSIX only.
        verify: "cheap" or "full": compare recomputed states with the first pass.

    Raises:
        PlanError: If a function is none, or cannot be called with what it is given; if
            `cost` or `cost_gradient` is there without the other; if `verify` is no way
            to verify.

    Examples:
        >>> import retape
        >>> cube = retape.Program(lambda x, k: x * x, lambda x, k, g: 2 * x * g)
        >>> retape.adjoint(cube, 1.5, seed=lambda x: 1.0, steps=3).cotangent
        136.6875
    """

    step: Callable[[X, int], X] | None
    reverse_step: Callable[[Any, int, G], G]
    _: KW_ONLY
    tape: Callable[[X, int], tuple[X, Any]] | None = None
    many: Callable[[X, int, int], X] | None = None
    done: Callable[[X], bool] | None = None
    observe: Callable[[X, int], object] | None = None
    cost: Callable[[X, int], Any] | None = None
    cost_gradient: Callable[[X, int], G] | None = None
    hidden: bool = False
    verify: Verify | None = None

    def __post_init__(self) -> None:
        """Refuse what is no function, and what does not go together."""
        check_verify(self.verify)
        needed = ("reverse_step", "step")[: 1 + (self.many is None)]
        check_functions(self.functions(), "retape.Program", needed)
        cost, cost_gradient = self.cost, self.cost_gradient
        if (cost is None) != (cost_gradient is None):
            raise PlanError(
                f"`cost={cost}` and `cost_gradient={cost_gradient}`: pass both or "
                "neither."
            )

    @property
    def one_step(self) -> Callable[[X, int], X]:
        """The function that makes one step."""
        if self.step is not None:
            return self.step
        assert self.many is not None
        return OneOfMany(self.many)

    def functions(self) -> dict[str, Any]:
        """The functions by their names, `None` for those left out."""
        return {name: getattr(self, name) for name in _FUNCTIONS}


_FUNCTIONS = (
    "step",
    "reverse_step",
    "done",
    "tape",
    "many",
    "observe",
    "cost",
    "cost_gradient",
)


def check_program(program: object) -> None:
    """Refuse what is no program.

    Raises:
        PlanError: If it is something else.
    """
    if not isinstance(program, Program):
        raise PlanError(
            f"`program={program!r}` is not a program. Pass "
            "`retape.Program(step, reverse_step)`, the step and its adjoint in one "
            "object, and the start state after it."
        )


# How the functions are called --------------------------------------------------


_GIVEN = {
    "step": ("x", "k"),
    "reverse_step": ("x", "k", "g"),
    "seed": ("x",),
    "done": ("x",),
    "tape": ("x", "k"),
    "many": ("x", "k0", "k1"),
    "observe": ("x", "k"),
    "cost": ("x", "k"),
    "cost_gradient": ("x", "k"),
    "tangent": ("x", "k", "v"),
    "value": ("x",),
}
"""What each function is given, by position."""


def check_functions(
    functions: Mapping[str, Any], of: str, needed: tuple[str, ...] = ("reverse_step",)
) -> None:
    """Refuse what is no function, and one that cannot be called as it will be.

    Args:
        functions: By their names; `None` where one was left out.
        of: What calls them, for the error.
        needed: Those that cannot be left out.

    Raises:
        PlanError: If there is such.
    """
    for name, function in functions.items():
        if function is None and name not in needed:
            continue
        if not callable(function):
            raise PlanError(
                f"`{name}={function!r}` is not a function. `{of}` calls it: see its "
                "documentation for what it is given and returns."
            )
        _check_arity(name, function)


def _check_arity(name: str, function: Any) -> None:
    try:
        found = signature(function)
    except (ValueError, TypeError):
        return  # Many a compiled function does not tell.
    given = _GIVEN[name]
    try:
        found.bind(*given)
    except TypeError as error:
        positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        takes = [p.name for p in found.parameters.values() if p.kind in positional]
        raise PlanError(
            f"`{name}` is called as `{name}({', '.join(given)})`, and it takes "
            f"({', '.join(takes)}): {error}. Give it these {len(given)} parameters, "
            "also where it does not use one."
        ) from None


def is_true(found: Any, k: int) -> bool:
    """What `done` says of the state before step k."""
    try:
        if found is not None:
            return bool(found)
    except (ValueError, TypeError, RuntimeError) as error:
        raise MachineError(
            f"`done` returned for the state before step {k} a "
            f"`{type(found).__name__}` that is neither true nor false: {error} Return "
            "one truth value, such as `bool(x.max() > 1)`."
        ) from error
    raise MachineError(
        f"`done` returned `None` for the state before step {k}: the run would never "
        "end. Return whether this is the last state."
    )


def add_term(cost: Any, term: Any, k: int) -> Any:
    """The cost so far, with the term of one more state."""
    shapes = shape_of(form_of(cost)), shape_of(looked_at(form_of, term, _COST, k))
    if None in shapes or (shapes[0] and shapes[0] != shapes[1]):
        what = f"of shape {shapes[1]}" if shapes[1] else f"`{term!r}`"
        raise MachineError(
            f"{_COST} {k} a `{type(term).__name__}` {what}, which cannot be added to a "
            f"sum of shape {shapes[0]}. Return a number, the term of this state."
        )
    return cost + term


_COST = "`cost` returned for k ="

"""How the user's functions are called, and what is no answer of theirs."""

from collections.abc import Mapping
from inspect import Parameter, signature
from typing import Any

from retape._errors import MachineError, PlanError
from retape.driver._steps._cotangent_form import looked_at
from retape.storage._trees._form import form_of, shape_of

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
    "inner": ("g", "v"),
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

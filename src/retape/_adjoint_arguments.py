"""The arguments of `retape.adjoint`: checked, and what they say a run is."""

from collections.abc import Callable
from operator import index
from typing import Any, SupportsIndex, TypeVar, cast

from retape._errors import PlanError
from retape.driver._hints import hints, unwrapped
from retape.driver._user_functions import check_functions
from retape.storage import (
    fingerprint,
)

X = TypeVar("X")


def check_arguments(functions: dict[str, Any], steps: object) -> int | None:
    """The number of steps, if it is given, of arguments that go together."""
    done, seed = functions["done"], functions["seed"]
    cost, cost_gradient = functions["cost"], functions["cost_gradient"]
    if (steps is None) == (done is None):
        raise PlanError(
            f"`steps={steps}` and `done={done}`: pass one of them, the number of steps "
            "or a predicate that is true at the end."
        )
    count = None if steps is None else _step_count(steps)
    if seed is None and cost_gradient is None:
        raise PlanError(
            "`seed=None`: a run needs a cotangent to begin with. Pass `seed`, from the "
            "last state to its cotangent, or `cost` and `cost_gradient`."
        )
    if (cost is None) != (cost_gradient is None):
        raise PlanError(
            f"`cost={cost}` and `cost_gradient={cost_gradient}`: pass both or neither."
        )
    needed = ("reverse_step", "step")[: 1 + (functions["forward"] is None)]
    check_functions(functions, "retape.adjoint", needed)
    return count


def _step_count(steps: object) -> int:
    """A number of steps, which may be an integer of NumPy's."""
    try:
        count = -1 if isinstance(steps, bool) else index(cast("SupportsIndex", steps))
    except TypeError:
        count = -1
    if count < 0:
        raise PlanError(
            f"`steps={steps!r}` cannot be: a run has no steps, or some. Pass an "
            "integer."
        )
    return count


def single_step(forward: Callable[[X, int, int], X]) -> Callable[[X, int], X]:
    """A step by a function that makes many."""
    return lambda x, k: forward(x, k, k + 1)


def check_key(key: object) -> None:
    """Refuse what is no name of a run."""
    if key is not None and (not isinstance(key, str | int) or "\n" in str(key)):
        raise PlanError(
            f"`key={key!r}` cannot be: pass a text of one line or a number, which says "
            "what program and what data the run is of."
        )


def run_label(
    functions: dict[str, Any],
    x0: object,
    steps: int | None,
    key: str | int | None,
    first_step: str,
) -> str:
    """The label of a run in a durable store: a title, and a line for each part."""
    named = unwrapped(functions["step"] or functions["forward"])
    title = getattr(named, "__qualname__", type(named).__name__)
    parts = {"x0": fingerprint(x0).hex(), "`steps`": str(steps)}
    if key is not None:
        title, parts["`key`"] = "a run with a key", repr(key)
    else:
        for name, function in functions.items():
            if function is not None and name != "observe":
                parts |= hints(name, function)
    parts["what step 0 does"] = first_step
    return "\n".join([title, *(f"{part}: {value}" for part, value in parts.items())])

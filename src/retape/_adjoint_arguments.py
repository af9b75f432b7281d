"""The arguments of `adjoint` and `forward`: checked, and made into a run."""

from collections.abc import Callable
from operator import index
from typing import Any, SupportsIndex, TypeVar, cast

from retape._errors import PlanError
from retape._warn import warn
from retape.driver._hints import hints, unwrapped
from retape.driver._interrupt import unheeded
from retape.driver._outgrown import Sample
from retape.driver._step_machine import StepFunctions, StepMachine
from retape.driver._user_functions import check_functions
from retape.plan._base import Plan
from retape.plan._constructors import fixed_space
from retape.storage import SnapshotStore, fingerprint, tree_nbytes

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


def machine_of(
    functions: dict[str, Any], x0: Any, steps: int | None, guarded: bool = False
) -> StepMachine[Any, Any]:
    """The program that functions of these names are, `None` for those left out."""
    if functions["step"] is None:
        functions = functions | {"step": _single_step(functions["forward"])}
    return StepMachine(StepFunctions(**functions), x0, steps, guarded)


def planned(
    machine: StepMachine[Any, Any],
    plan: Plan | None,
    store: SnapshotStore[Any] | None,
) -> tuple[Plan, int]:
    """The plan of a run, and the bytes of a step's tape.

    What the plan was made with is compared with what the run meets; tiers without a
    store for each are told to be one.
    """
    chosen = fixed_space(snapshots=20) if plan is None else plan
    if store is None and isinstance(chosen, Plan):
        _warn_of_tiers(chosen, machine.steps)
    with unheeded():
        tape_bytes = machine.step_tape_nbytes()
    if isinstance(chosen, Plan) and chosen.counts_bytes:
        sizes = {"state": tree_nbytes(machine.x0), "tape": tape_bytes}
        machine.sample = Sample(repr(chosen), sizes)
    return chosen, tape_bytes


def _warn_of_tiers(plan: Plan, steps: int | None) -> None:
    """Say that tiers without stores are one."""
    if plan.far_tiers and (steps is not None or not plan.needs_length):
        far = ", ".join(plan.far_tiers)
        warn(
            f"`plan={plan!r}` without `store`: snapshots of {far} stay in "
            "memory, too. Pass a `retape.TieredStore` with a part for each tier, or "
            "`store=retape.MemoryStore()` if that is meant."
        )


def _single_step(forward: Callable[[X, int, int], X]) -> Callable[[X, int], X]:
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

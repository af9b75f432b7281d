"""The arguments of `adjoint` and what is like it: checked, and made into a run."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from retape._arguments import whole
from retape._errors import PlanError
from retape._reads import unwrapped
from retape._warn import warn
from retape.driver import run
from retape.driver._interrupt import unheeded
from retape.driver._progress import Progress
from retape.driver._run import Outcome
from retape.driver._steps._hints import hints
from retape.driver._steps._program import Program, check_functions, check_program
from retape.driver._steps._step_machine import StepMachine
from retape.driver._steps._step_records import FirstSizes
from retape.plan._base import Plan
from retape.plan._constructors import fixed_space
from retape.storage import SnapshotStore, fingerprint, tree_nbytes
from retape.storage._base import is_durable

X = TypeVar("X")
G = TypeVar("G")


def machine_of(program: Program[X, G], x0: X, steps: object) -> StepMachine[X, G]:
    """The machine of a program, which may be seeded later.

    Args:
        program: What the user passed.
        x0: The start state.
        steps: The number of steps, if it is given.

    Raises:
        PlanError: If the arguments do not go together.
    """
    check_program(program)
    if (steps is None) == (program.done is None):
        raise PlanError(
            f"`steps={steps}` and `Program(done={program.done})`: pass one of them, "
            "the number of steps or a predicate that is true at the end."
        )
    count = None if steps is None else whole("steps", steps, 0)
    return StepMachine(program, x0, count)


def seeded(
    machine: StepMachine[X, G], seed: Callable[[X], G] | None, of: str
) -> StepMachine[X, G]:
    """The machine, with what its way back begins with.

    Args:
        machine: It.
        seed: From the last state to its cotangent.
        of: What was called, for errors.

    Raises:
        PlanError: If there is nothing to begin with.
    """
    if seed is None and machine.program.cost_gradient is None:
        raise PlanError(
            "`seed=None`: a run needs a cotangent to begin with. Pass `seed`, from the "
            "last state to its cotangent, or a program with `cost` and "
            "`cost_gradient`."
        )
    check_functions({"seed": seed}, of, ())
    machine.seed = seed
    return machine


def planned(
    machine: StepMachine[Any, Any],
    plan: Plan | None,
    store: SnapshotStore[Any] | None,
) -> tuple[Plan, int]:
    """The plan of a run, and the bytes of a step's tape.

    What the plan was made with is compared with what the run meets; tiers without a
    store for each are told to be one.

    Raises:
        PlanError: If it is a schedule, and where the run ends is not known.
    """
    chosen = fixed_space(snapshots=20) if plan is None else plan
    check_end(machine, chosen)
    if store is None and isinstance(chosen, Plan):
        _warn_of_tiers(chosen, machine.steps)
    with unheeded():
        tape_bytes = machine.step_tape_nbytes()
    if isinstance(chosen, Plan) and chosen.counts_bytes:
        sizes = {"state": tree_nbytes(machine.x0), "tape": tape_bytes}
        machine.first_sizes = FirstSizes(repr(chosen), sizes)
    return chosen, tape_bytes


def check_end(machine: StepMachine[Any, Any], plan: object) -> None:
    """Refuse a schedule where the run's end is not known: it would end elsewhere."""
    if machine.steps is None and isinstance(plan, Iterable):
        raise PlanError(
            f"`plan={plan!r}` is a schedule, which ends at a step of its own, and the "
            "run ends where `done` says. Pass a plan, such as "
            "`retape.fixed_space(snapshots=20)`."
        )


def _warn_of_tiers(plan: Plan, steps: int | None) -> None:
    """Say that tiers without stores are one."""
    if plan.far_tiers and (steps is not None or not plan.needs_length):
        far = ", ".join(plan.far_tiers)
        warn(
            f"`plan={plan!r}` without `store`: snapshots of {far} stay in "
            "memory, too. Pass a `retape.TieredStore` with a part for each tier, or "
            "`store=retape.MemoryStore()` if that is meant."
        )


def run_through(
    machine: StepMachine[X, G],
    plan: Plan | None,
    store: SnapshotStore[Any] | None,
    *,
    key: str | int | None = None,
    reuse: bool = False,
    progress: bool | Callable[[Progress], None] = False,
) -> tuple[Outcome[Any], Plan, int]:
    """Run a machine forward and back; a run that lies in its store is taken up.

    Returns:
        The outcome, the plan that was obeyed, and the bytes of a step's tape.
    """
    check_key(key)
    check_reuse(reuse)
    if reuse and not is_durable(store):
        warn(
            "`reuse=True` without a store that outlives the process: there is no run "
            "to find, and this one is made. Pass `store=retape.DiskStore(directory)`."
        )
    chosen, tape_bytes = planned(machine, plan, store)
    label = ""
    if is_durable(store):
        machine.signs = True
        with unheeded():
            label = run_label(machine, key)
    outcome = run(
        machine,
        chosen,
        store=store,
        tape_bytes=tape_bytes,
        progress=progress,
        verify=machine.program.verify,
        fingerprint=machine.fingerprint,
        label=label,
        reuse=reuse,
    )
    return outcome, chosen, tape_bytes


def check_key(key: object) -> None:
    """Refuse what is no name of a run."""
    if key is not None and (not isinstance(key, str | int) or "\n" in str(key)):
        raise PlanError(
            f"`key={key!r}` is not valid: pass one line of text or a number, which "
            "says what program and what data the run is of."
        )


def check_reuse(reuse: object) -> None:
    """Refuse what says neither that a result is to be reused nor that it is not."""
    if not isinstance(reuse, bool):
        raise PlanError(
            f"`reuse={reuse!r}` is not valid: pass `True` for the result of a run that "
            "is done and lies in the store, or `False`."
        )


def run_label(machine: StepMachine[Any, Any], key: str | int | None) -> str:
    """The label of a run in a durable store: a title, and a line for each part."""
    program = machine.program
    named = unwrapped(program.step or program.many)
    title = getattr(named, "__qualname__", type(named).__name__)
    parts = {"x0": fingerprint(machine.x0).hex(), "`steps`": str(machine.steps)}
    if key is not None:
        title, parts["`key`"] = "a run with a key", repr(key)
    else:
        functions = program.functions() | {"seed": machine.seed}
        for name, function in functions.items():
            if function is not None and name != "observe":
                parts |= hints(name, function)
    parts["what step 0 does"] = machine.first_step()
    return "\n".join([title, *(f"{part}: {value}" for part, value in parts.items())])

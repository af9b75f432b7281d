"""`retape.adjoint(snapshots="process")`: a run whose snapshots are forked processes."""

from collections.abc import Callable
from typing import Any

from retape._errors import PlanError
from retape.driver import Outcome, Progress, run
from retape.driver._processes import ProcessMachine, WorkerStore
from retape.driver._step_machine import StepMachine
from retape.plan._base import Plan
from retape.plan._constructors import fixed_space


def run_in_processes(
    machine: StepMachine[Any, Any],
    plan: Plan | None,
    progress: bool | Callable[[Progress], None],
    snapshots: object,
    refused: dict[str, object],
) -> Outcome[Any]:
    """Run a machine whose snapshots are processes.

    Args:
        machine: Of the user's functions.
        plan: How memory and time are traded.
        progress: A bar, or what is told.
        snapshots: "process", or what is refused.
        refused: Arguments that do not go with it, `None` where not given.

    Raises:
        PlanError: If one is given.
    """
    if snapshots != "process":
        raise PlanError(
            f"`snapshots={snapshots!r}` is not known. Pass 'copy' or 'process'."
        )
    for name, value in refused.items():
        if value is not None:
            raise PlanError(
                f"`{name}={value!r}` does not go with `snapshots='process'`: "
                f"{_NOT_IN_PROCESSES[name]}. Leave it out."
            )
    machine.hidden = True
    forked: ProcessMachine[Any, Any] = ProcessMachine(machine)
    try:
        return run(
            forked,
            fixed_space(snapshots=20) if plan is None else plan,
            store=WorkerStore(),
            progress=progress,
        )
    finally:
        forked.close()


_NOT_IN_PROCESSES = {
    "store": "a process that waits cannot be written",
    "verify": "hidden states cannot be compared",
    "observe": "steps are run in other processes, and what it keeps would be theirs",
    "tape": "the process of a step has all that its adjoint needs",
    "health": "the functions are run once more to find a fault, with no hidden state",
    "measure": "the heaps of other processes are not seen",
}

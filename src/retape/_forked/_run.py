"""`retape.Program(hidden=True)`: a run whose snapshots are forked processes."""

from collections.abc import Callable
from typing import Any

from retape._errors import PlanError
from retape._forked._machine import ProcessMachine, WorkerStore
from retape.driver import run
from retape.driver._progress import Progress
from retape.driver._run import Outcome
from retape.driver._steps._program import Program
from retape.driver._steps._step_machine import StepMachine
from retape.plan._base import Plan
from retape.plan._constructors import fixed_space


def run_in_processes(
    machine: StepMachine[Any, Any],
    plan: Plan | None,
    progress: bool | Callable[[Progress], None],
    store: object,
    key: object,
) -> Outcome[Any]:
    """Run a machine whose snapshots are processes.

    Args:
        machine: Of a program with hidden state.
        plan: How memory and time are traded.
        progress: A bar, or what is told.
        store: A store, which is refused.
        key: The name of a run on disk, which is refused.

    Raises:
        PlanError: If the program or the call has what does not go with it.
    """
    program = machine.program
    passed = {"store": store, "key": key, "verify": program.verify}
    passed |= {"observe": program.observe, "tape": program.tape}
    for name, value in passed.items():
        if value is not None:
            raise PlanError(
                f"`{name}={value!r}` does not go with `Program(hidden=True)`: "
                f"{_NOT_IN_PROCESSES[name]}. Leave it out."
            )
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


def refuse_hidden(program: object, call: str) -> None:
    """Refuse a program with hidden state where it is of no use.

    Raises:
        PlanError: If it has.
    """
    if isinstance(program, Program) and program.hidden:
        raise PlanError(
            f"`Program(hidden=True)` does not go with `retape.{call}`: "
            f"{_NOT_IN_PROCESSES[call]}. Call `retape.adjoint`."
        )


_NOT_IN_PROCESSES = {
    "store": "a process that waits cannot be written",
    "key": "nothing of the run is on disk that it would be the name of",
    "verify": "hidden states cannot be compared",
    "observe": "steps are run in other processes, and what it keeps would be theirs",
    "tape": "the process of a step has all that its adjoint needs",
    "forward": "a process that waits for a gradient may wait forever",
    "diagnose": "the functions are run once more to find a fault, with no hidden state",
    "measure": "the heaps of other processes are not seen",
}

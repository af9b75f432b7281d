"""The friendly front of the driver: a program, run forward and back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from retape._adjoint_arguments import machine_of, run_through, seeded
from retape._forked._run import run_in_processes
from retape.driver._health import Health
from retape.driver._progress import Bar, Progress
from retape.driver._report import Report
from retape.driver._steps._program import Program
from retape.plan._base import Plan
from retape.plan._constructors import budgeted
from retape.storage._disk import AnyStore, store_of

X = TypeVar("X")
G = TypeVar("G")


@dataclass(frozen=True, slots=True)
class Adjoint(Generic[X, G]):
    """The result of `retape.adjoint`: cotangents, and a report.

    Attributes:
        state: The state after the last step.
        cotangent: The cotangent of the start state.
        report: What was done.
        cost: The sum of the cost terms of all states; `None` without `cost`.
        health: How large cotangents were, and what spoils them; `None` but from
            `retape.diagnose`.
    """

    state: X
    cotangent: G
    report: Report
    cost: Any = None
    health: Health | None = None


def adjoint(
    program: Program[X, G],
    x0: X,
    *,
    seed: Callable[[X], G] | None = None,
    steps: int | None = None,
    plan: Plan | None = None,
    memory: float | str | None = None,
    store: AnyStore | None = None,
    key: str | int | None = None,
    reuse: bool = False,
    progress: bool | Callable[[Progress], None] = False,
) -> Adjoint[X, G]:
    """Run a simulation forward and its adjoint backward, in bounded memory.

    `retape.forward` does the first half and waits. `retape.explain` says what a run
    will take, `retape.measure` runs it and says what it took, `retape.diagnose` finds
    what spoils a gradient.

    Args:
        program: The step, its adjoint, and what else belongs to them.
        x0: The start state, which is not changed.
        seed: From the last state to its cotangent. It may be left out if the program
            has a `cost_gradient`.
        steps: The number of steps; left out if the program has `done`.
        plan: How memory and time are traded; by default
            `retape.fixed_space(snapshots=20)`.
        memory: Bytes, or a text such as "1 GB": instead of `plan`, for
            `plan=retape.within(memory)`.
        store: Where snapshots go, or the folder of a `DiskStore`. With one of these or
            a `TieredStore` a run that was killed is taken up again by the same call,
            and gives the same bits. The same call means the same x0, number of steps
            and plan, and functions that do the same: steps that are run again have to
            give the bits that they gave. Another run is refused, and the difference
            named. One that is done makes room for the next.
        key: What the run is, in the place of the functions: a text or a number that
            you change whenever the program or its data change.
        reuse: Take the result of a finished run from the store, if it has it.
            Otherwise a finished run is run again.
        progress: `True` for a bar, or a function that is told.

    With d snapshots in memory and alpha steps in a stage no more than d + alpha + 3
    states are alive at once: the snapshots, the tape, the state that is worked on, its
    copy, and the last state of the run, which is part of the result. What `step` makes
    inside it, x0 itself and the cotangent come on top. With a store on disk the
    snapshots are none of them, and two states with their cotangents are held for the
    record, as what the adjoint of the last reversed steps was given.

    Returns:
        The last state, the cotangent of x0, a `Report` and the cost.

    Raises:
        PlanError: If the arguments do not go together.
        MachineError: If a function returns what is no state, tape or cotangent.
        StoreError: If a state cannot be copied or written, or a store belongs to
            another run.
        DeterminismError: If `verify` finds a step that gives another state.
        UnsupportedError: If this process cannot be forked, for `Program(hidden=True)`.

    Examples:
        The derivative of x -> x**8 at 1.5, as three squarings.

        >>> import retape
        >>> square = retape.Program(
        ...     step=lambda x, k: x * x, reverse_step=lambda x, k, g: 2 * x * g
        ... )
        >>> result = retape.adjoint(square, 1.5, seed=lambda x: 1.0, steps=3)
        >>> result.state, result.cotangent
        (25.62890625, 136.6875)
    """
    plan, store = budgeted(plan, memory), store_of(store)
    machine = seeded(machine_of(program, x0, steps), seed, "retape.adjoint")
    watch = Bar() if progress is True else progress
    if program.hidden:
        outcome = run_in_processes(machine, plan, watch, store, key)
    else:
        outcome, *_ = run_through(
            machine, plan, store, key=key, reuse=reuse, progress=watch
        )
    state, total, cotangent, *_ = outcome.result
    return Adjoint(state, cotangent, outcome.report, total)

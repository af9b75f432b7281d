"""The friendly front of the driver: a program, run forward and back.

And what that takes, told: before it is done, and while it is.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from retape._adjoint_arguments import (
    check_end,
    machine_of,
    planned,
    run_through,
    seeded,
)
from retape._arguments import whole
from retape._forked._machine import refuse_hidden, run_in_processes
from retape.driver._health import Health
from retape.driver._memory_trace import MemoryTrace, Meter, predict_memory
from retape.driver._progress import Bar, Progress
from retape.driver._report import Report
from retape.driver._steps._program import Program
from retape.plan._base import Plan
from retape.plan._constructors import budgeted
from retape.plan._prediction import Prediction
from retape.plan._support import ADJOINT, check_plan
from retape.storage import SnapshotStore, tree_nbytes
from retape.storage._base import is_durable
from retape.storage._disk import AnyStore, DiskStore, store_of

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
        key: What the run is in a store that outlives the process, in the place of the
            functions: a text or a number that you change whenever the program or its
            data change.
        reuse: Take the result of a finished run from such a store, if it has it.
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
        check_end(machine, plan)
        outcome = run_in_processes(machine, plan, watch, store, key)
    else:
        outcome, *_ = run_through(
            machine, plan, store, key=key, reuse=reuse, progress=watch
        )
    state, total, cotangent, *_ = outcome.result
    return Adjoint(state, cotangent, outcome.report, total)


def explain(
    program: Program[X, G],
    x0: X,
    *,
    steps: int,
    plan: Plan | None = None,
    memory: float | str | None = None,
) -> Prediction:
    """Say what a run will take: its snapshots, steps and bytes. Nothing is run back.

    One step is made where the program has a `tape`, which is measured.

    Args:
        program: As in `retape.adjoint`.
        x0: The start state.
        steps: The number of steps, or how many you expect.
        plan: How memory and time are traded; by default
            `retape.fixed_space(snapshots=20)`.
        memory: Bytes, or a text such as "1 GB": instead of `plan`, for
            `plan=retape.within(memory)`.

    Raises:
        PlanError: If the arguments do not go together.
        BudgetError: If a budget is too small; the least that would do is named.
        StoreError: If a state contains itself.

    Examples:
        >>> import numpy as np
        >>> import retape
        >>> decay = retape.Program(lambda x, k: 0.9 * x, lambda x, k, g: 0.9 * g)
        >>> plan = retape.within("100 kB")
        >>> found = retape.explain(decay, np.ones(1000), steps=10_000, plan=plan)
        >>> found.peak_snapshots, found.advances, found.peak_bytes
        (9, 51003, 96000)
    """
    plan = _asked(budgeted(plan, memory))
    known = replace(program, done=None)
    machine = machine_of(known, x0, whole("steps", steps, 0))
    chosen, tape_bytes = planned(machine, plan, None)
    return chosen.predict(steps, tree_nbytes(x0), tape_bytes)


def measure(
    program: Program[X, G],
    x0: X,
    *,
    seed: Callable[[X], G] | None = None,
    steps: int | None = None,
    plan: Plan | None = None,
    memory: float | str | None = None,
    store: AnyStore | None = None,
    key: str | int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Adjoint[X, G]:
    """Run a program as `retape.adjoint` does, and measure Python's heap meanwhile.

    That takes longer. `retape.viz.timeline(result.report)` draws what was measured over
    what the plan predicts; `result.report.memory` has both.

    Args:
        program: As in `retape.adjoint`, and so are all others.
        x0: The start state.
        seed: From the last state to its cotangent.
        steps: The number of steps.
        plan: How memory and time are traded.
        memory: Bytes, or a text such as "1 GB": instead of `plan`, for
            `plan=retape.within(memory)`.
        store: Where snapshots go.
        key: What the run is.
        progress: A function that is told.

    Raises:
        PlanError: If the arguments do not go together.
        StoreError: If a state contains itself.

    Examples:
        >>> import numpy as np
        >>> import retape
        >>> decay = retape.Program(lambda x, k: 0.9 * x, lambda x, k, g: 0.9 * g)
        >>> plan = retape.fixed_space(snapshots=5)
        >>> x0 = np.ones(10**5)
        >>> found = retape.measure(decay, x0, seed=np.copy, steps=100, plan=plan)
        >>> memory = found.report.memory
        >>> round(memory.measured_peak / memory.predicted_peak, 1)
        1.0
    """
    plan, store = _asked(budgeted(plan, memory)), store_of(store)
    refuse_hidden(program, "measure")
    machine = seeded(machine_of(program, x0, steps), seed, "retape.measure")
    with Meter(after=progress) as meter:
        outcome, chosen, tape_bytes = run_through(
            machine, plan, store, key=key, progress=meter
        )
    state, total, cotangent, *_ = outcome.result
    sizes = tree_nbytes(x0), tape_bytes, tree_nbytes(cotangent)
    trace = _memory(chosen, steps, outcome.report.length, sizes, store, meter)
    return Adjoint(state, cotangent, replace(outcome.report, memory=trace), total)


def _asked(plan: Any) -> Plan | None:
    """A plan that is asked what it takes, as no schedule can be."""
    return None if plan is None else check_plan(plan, ADJOINT)


def _memory(
    plan: Plan,
    steps: int | None,
    length: int,
    sizes: tuple[int, int | None, int],
    store: SnapshotStore[Any] | None,
    meter: Meter,
) -> MemoryTrace:
    """The plan's prediction for this run, and the measurement."""
    capsule, tape, cotangent = sizes
    if steps is not None:
        schedule = plan.schedule(length, None if tape is None else capsule, tape)
    else:
        online = plan.online(None if tape is None else capsule, tape)
        schedule = online.actions(length)
    # For its record: what the adjoint of the last reversed step was given, copied, and
    # the same of the step before until the new one is complete.
    proof = 2 * ((tape or capsule) + cotangent) if is_durable(store) else 0
    predicted = predict_memory(
        schedule,
        capsule,
        tape or 0,
        # The state that is worked on, the next one, a copy, and the run's last state.
        working_bytes=4 * capsule,
        # The cotangents after a step and before it.
        cotangent_bytes=2 * cotangent + proof,
        on_disk=isinstance(store, DiskStore),
    )
    source, budget = "Python's heap (tracemalloc)", plan.budget
    return MemoryTrace(predicted, tuple(meter.samples), source, budget=budget)

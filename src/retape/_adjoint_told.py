"""What `adjoint` does, told: before it is done, and while it is."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from retape._adjoint import Adjoint
from retape._adjoint_arguments import machine_of, planned, run_through, seeded
from retape._arguments import whole
from retape._forked._run import refuse_hidden
from retape.driver._memory_trace import MemoryTrace, Meter, predict_memory
from retape.driver._progress import Progress
from retape.driver._steps._program import Program
from retape.plan._base import Plan
from retape.plan._constructors import budgeted
from retape.plan._prediction import Prediction
from retape.storage import SnapshotStore, tree_nbytes
from retape.storage._base import is_durable
from retape.storage._disk import AnyStore, DiskStore, store_of

X = TypeVar("X")
G = TypeVar("G")


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
    plan = budgeted(plan, memory)
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
    plan, store = budgeted(plan, memory), store_of(store)
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

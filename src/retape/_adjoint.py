"""The friendly front of the driver: a step function and its adjoint."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from retape._adjoint_arguments import (
    check_arguments,
    check_key,
    machine_of,
    planned,
    run_label,
)
from retape._adjoint_health import CotangentWatch, diagnose
from retape._adjoint_processes import run_in_processes
from retape.driver import (
    Bar,
    Health,
    MemoryTrace,
    Meter,
    Progress,
    Report,
    Verify,
    predict_memory,
    run,
)
from retape.driver._health import check_growth
from retape.driver._interrupt import unheeded
from retape.driver._step_machine import StepMachine
from retape.plan._base import Plan
from retape.plan._constructors import fixed_space
from retape.storage import (
    DiskStore,
    SnapshotStore,
    tree_nbytes,
)
from retape.storage._base import is_durable

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
        health: How large cotangents were, and what spoils them; `None` without
            `health=True`.
    """

    state: X
    cotangent: G
    report: Report
    cost: Any = None
    health: Health | None = None


def adjoint(
    step: Callable[[X, int], X] | None,
    reverse_step: Callable[[Any, int, G], G],
    x0: X,
    *,
    seed: Callable[[X], G] | None = None,
    steps: int | None = None,
    done: Callable[[X], bool] | None = None,
    tape: Callable[[X, int], tuple[X, Any]] | None = None,
    forward: Callable[[X, int, int], X] | None = None,
    observe: Callable[[X, int], object] | None = None,
    cost: Callable[[X, int], Any] | None = None,
    cost_gradient: Callable[[X, int], G] | None = None,
    plan: Plan | None = None,
    store: SnapshotStore[Any] | None = None,
    key: str | int | None = None,
    reuse: bool = False,
    in_place: bool | None = None,
    snapshots: Literal["copy", "process"] = "copy",
    verify: Verify | None = None,
    progress: bool | Callable[[Progress], None] = False,
    measure: bool = False,
    health: bool = False,
    growth: float = 1e6,
) -> Adjoint[X, G]:
    """Run a simulation forward and its adjoint backward, in bounded memory.

    States, cotangents and tapes are arrays of NumPy or JAX, tensors of PyTorch, numbers
    or trees of them: tuples, named tuples, lists, dictionaries with string keys,
    dataclasses. Tensors are handed on without autograd's graph, which would keep every
    state: a `reverse_step` that needs one builds it for its step. Objects of other
    classes are states too if they have the four methods of `retape.storage.State`, or
    their class is registered by `retape.register_state`.

    The functions may use memory as they like: change their argument, return it or a
    buffer that they use again, in Python, C or Fortran. What is kept of a run is
    copied, so nothing of that reaches the gradient, `x0` or the result.

    Args:
        step: From the state before step k, and k, to the state after it.
        reverse_step: From the state before step k, k and the cotangent of the state
            after it, to the cotangent of the state before it. Gradients of parameters
            are accumulated in the cotangent.
        x0: The start state.
        seed: From the last state to its cotangent. It may be left out if there is a
            `cost_gradient`.
        steps: The number of steps; or
        done: a predicate: the run ends at the first state for which it is true.
        tape: From the state before step k, and k, to the state after it and all that
            the adjoint of the step needs, a tree of arrays; `reverse_step` is given
            this in the place of the state. Without it a step's tape is the state
            before it. It is called once more, for step 0, to measure a tape.
        forward: From the state before step k0, k0 and k1 to the state before step k1:
            many steps at a call, as operators run them. It is called where steps are
            advanced; `step` may then be `None`.
        observe: Called with a copy of each state and its k = 0, ..., n, once and in
            order, in the first pass. Of a run that was killed the states since the last
            snapshot are shown again.
        cost: From the state before step k, and k, to a term of the objective that is
            summed over all states, k = 0, ..., n. The sum is in the result.
        cost_gradient: Its derivative: the cotangent of the same state. It is added to
            what `seed` and `reverse_step` return.
        plan: How memory and time are traded; by default
            `retape.fixed_space(snapshots=20)`.
        store: Where snapshots go. With a `DiskStore` or a `TieredStore` a run that was
            killed is taken up again by the same call, and gives the same bits. The
            same call means the same x0, number of steps and plan, and functions that
            do the same: steps that are run again have to give the bits that they gave.
            Another run is refused, and the difference named. One that is done makes
            room for the next.
        key: What the run is, in the place of the functions: a text or a number that
            you change whenever the program or its data change.
        reuse: Take the result of a finished run from the store, if it has it.
            Otherwise a finished run is run again.
        in_place: A hint: `False` says that `step` does not change its argument. It is
            then given read-only arrays, so that a step which does so in NumPy is an
            error (PyTorch has no read-only tensors). Results do not depend on it.
        snapshots: "copy" of the state; or "process", for functions whose state nobody
            can copy (COMMON blocks, static variables, objects): a snapshot is then a
            forked process that waits. `step` is run in it, and `seed`, `cost` and
            `reverse_step`, with the hidden state before step k; states may be `None`.
            Cotangents pass between processes, so `pickle` must take them. POSIX only.
        verify: "cheap" or "full": compare recomputed states with the first pass.
        progress: `True` for a bar, or a function that is told.
        measure: Measure Python's heap over the run, which takes longer then:
            `retape.viz.timeline(result.report)` draws it over what the plan predicts.
        health: Watch how large cotangents are on the way back, and name the step, the
            line and the variable that spoils them. Only if one is not as it should be,
            the functions are run again to find the step. Every step is looked at; where
            cotangents are arrays of JAX or on a device, 32 of them, evenly spread. Of a
            run that was taken up again those of this process are looked at.
        growth: With `health`: how many times larger than `seed` returned it the
            cotangent may become before that counts as a fault.

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
        DeterminismError: If `verify` finds a step that gives another state, or what
            `health` found is not there when the functions are run again.
        UnsupportedError: If this process cannot be forked, for `snapshots="process"`.

    Examples:
        The derivative of x -> x**8 at 1.5, as three squarings.

        >>> import retape
        >>> result = retape.adjoint(
        ...     step=lambda x, k: x * x,
        ...     reverse_step=lambda x, k, g: 2 * x * g,
        ...     x0=1.5,
        ...     seed=lambda x: 1.0,
        ...     steps=3,
        ... )
        >>> result.state, result.cotangent
        (25.62890625, 136.6875)
    """
    passed = {
        "step": step,
        "reverse_step": reverse_step,
        "seed": seed,
        "done": done,
        "tape": tape,
        "forward": forward,
        "observe": observe,
        "cost": cost,
        "cost_gradient": cost_gradient,
    }
    steps = check_arguments(passed, steps)
    check_growth(growth)
    check_key(key)
    machine: StepMachine[Any, Any] = machine_of(passed, x0, steps, in_place is False)
    if snapshots != "copy":
        refused = {
            "store": store,
            "verify": verify,
            "observe": observe,
            "tape": tape,
            "measure": measure or None,
            "health": health or None,
        }
        outcome = run_in_processes(machine, plan, progress, snapshots, refused)
        state, total, cotangent, *_ = outcome.result
        return Adjoint(state, cotangent, outcome.report, total)
    cotangents = CotangentWatch(growth)
    machine.watch = cotangents if health else None
    chosen, tape_bytes = planned(machine, plan, store)
    label = ""
    if is_durable(store):
        machine.signs = True
        with unheeded():
            label = run_label(passed, x0, steps, key, machine.first_step())
    watch = Bar() if progress is True else progress
    meter = Meter(after=watch or None) if measure else None
    with meter or nullcontext():
        outcome = run(
            machine,
            chosen,
            store=store,
            tape_bytes=tape_bytes,
            progress=meter or watch,
            verify=verify,
            fingerprint=machine.fingerprint if verify else None,
            label=label,
            reuse=reuse,
        )
    state, total, cotangent, *_ = outcome.result
    report = outcome.report
    if meter is not None and isinstance(chosen, Plan):
        sizes = machine.nbytes(machine.start()), tape_bytes, tree_nbytes(cotangent)
        memory = _memory(chosen, steps, report.length, sizes, store, meter)
        report = replace(report, memory=memory)
    if not health:
        return Adjoint(state, cotangent, report, total)
    again = fixed_space(snapshots=4) if is_durable(store) else chosen
    ends = state, 0.0 if total is None else total
    found = diagnose(machine, cotangents, again, report.length, ends)
    return Adjoint(state, cotangent, report, total, found)


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

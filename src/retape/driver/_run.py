"""`run`: a machine, a plan and a store, from the first step to the result."""

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, TypeVar, cast

from retape._errors import MachineError, PlanError, StoreError
from retape.driver._actions import Planner, remaining
from retape.driver._interrupt import heeded
from retape.driver._loop import Run
from retape.driver._machine import Machine, ResumedMachine, check_machine, offers
from retape.driver._progress import Bar, Progress
from retape.driver._report import Report
from retape.driver._resume import AnotherProgram
from retape.driver._steps._step_machine import StepMachine
from retape.driver._verify import Verify, verifier_of
from retape.schedule import Reverse
from retape.schedule._action import Action
from retape.storage import Record, SnapshotStore
from retape.storage._base import AnotherRun
from retape.storage._disk import AnyStore, store_of
from retape.storage._memory import MemoryStore
from retape.storage._tiered import name_tiers

C = TypeVar("C")
A = TypeVar("A")
R = TypeVar("R")


class Outcome(NamedTuple, Generic[R]):
    """The result of `run`: the machine's result, and a report."""

    result: R
    report: Report


def run(
    machine: Machine[C, A, R],
    plan: Planner | Iterable[Action],
    *,
    store: AnyStore | None = None,
    tape_bytes: int | None = None,
    progress: bool | Callable[[Progress], None] = False,
    verify: Verify | None = None,
    fingerprint: Callable[[C], bytes] | None = None,
    label: str = "",
    reuse: bool = False,
) -> Outcome[R]:
    """Reverse a machine under a plan.

    With a durable store (`DiskStore`, `TieredStore`) a run whose process ended, in
    whatever way, is taken up again by the same call, and its result has the same bits.
    A run that was done is run again, unless `reuse` asks for its result.

    Args:
        machine: The program.
        plan: A plan, or an iterable of actions made for the machine's length.
        store: Where snapshots go, or the folder of a `DiskStore`; by default a
            `MemoryStore` of its own.
        tape_bytes: What taping one step takes, for plans that count bytes.
        progress: `True` for a bar on the terminal, or a function that is told.
        verify: "cheap" compares recomputed states with those of the first pass where
            advances end, "full" after every step.
        fingerprint: A digest of a capsule, for `verify`.
        label: What this run is, one line or more. A durable store refuses a run with
            another label, and names the lines that differ.
        reuse: Take the result of a finished run from the store, if it has it.

    Returns:
        The machine's result and a `Report`.

    Raises:
        DeterminismError: If `verify` finds a step that gives another state.
        StoreError: If a snapshot cannot be kept.
        PlanError: If the plan does not go with the machine or the store.
        MachineError: If the machine breaks one of its laws.

    Examples:
        >>> import retape
        >>> from retape.driver import ToyMachine, run
        >>> outcome = run(ToyMachine(100), retape.fixed_space(snapshots=3))
        >>> outcome.report.advances, outcome.report.peak_snapshots
        (490, 3)
    """
    check_machine(machine)
    _check_run(plan, progress)
    given = store_of(store)
    kept = MemoryStore[C]() if given is None else given
    named = _name_of(label or type(machine).__name__, plan)
    watch = Bar() if progress is True else progress or None
    with claimed(kept), heeded(kept) as limit:

        def begun() -> Run:
            verifier = verifier_of(verify, fingerprint, kept)
            return Run(machine, kept, verifier, watch, named, limit)

        first = begun()
        try:
            return _through(first, plan, tape_bytes, reuse)
        except AnotherProgram:
            done = first.proof is not None and first.proof.done
            if not done or isinstance(plan, Iterator):
                raise
        # The program has changed since: a run that was done has no part in its next.
        if offers(machine, ResumedMachine):
            first.machine.resume(0, False)
        return _through(begun(), plan, tape_bytes, reuse=False)


def run_to_the_end(
    machine: StepMachine[Any, Any],
    plan: Planner,
    store: SnapshotStore[Any] | None,
    tape_bytes: int | None,
) -> tuple[Run, ExitStack]:
    """Run a machine forward and tape its last stage, which `run_back` sweeps.

    Args:
        machine: The program.
        plan: A plan.
        store: Where snapshots wait; it ends with the process.
        tape_bytes: What taping one step takes.

    Returns:
        The run, and what keeps others out of its store: its end frees the slots.

    Raises:
        PlanError: If it is none, or the run is to be ended early, which loses it.
        StoreError: If a snapshot cannot be kept.
    """
    _check_run(plan, False)
    kept = MemoryStore[Any]() if store is None else store
    verifier = verifier_of(machine.program.verify, machine.fingerprint, kept)
    paused, claim = Run(machine, kept, verifier), ExitStack()
    claim.enter_context(claimed(kept))
    claim.callback(paused.release)
    try:
        name_tiers(kept, getattr(plan, "tier_names", ()))
        paused.rest = iter(remaining(paused, plan, tape_bytes, None))
        with heeded(kept):
            last = paused.go(until=Reverse)
        if last is None:
            raise _without_reverse()
        paused.next_to_reverse(last.stop)
        capsule = paused.take(last.start)
        # The machine has the last stage; something is where the action looks for it.
        paused.working = machine.reach_end(capsule, last.stop - last.start)
    except BaseException:
        claim.close()
        raise
    return paused, claim


def run_back(paused: Run) -> Outcome[Any]:
    """Go on with a run that has come to its end."""
    with heeded(paused.store):
        paused.go()
    return _outcome(paused)


def _through(
    run: Run,
    plan: Planner | Iterable[Action],
    tape_bytes: int | None,
    reuse: bool,
) -> Outcome[Any]:
    """Run to the end and back, from where the store says that the run is."""
    name_tiers(run.store, getattr(plan, "tier_names", ()))
    record = None if run.durable is None else _opened(run.durable, run.label, reuse)
    try:
        run.rest = iter(remaining(run, plan, tape_bytes, record))
        try:
            run.go()
        except KeyboardInterrupt:
            # Of several processes it may be one alone: the others would wait for it.
            if not run.store.is_shared:
                run.record()
            raise
        run.record()
    finally:
        if run.durable is None:
            run.release()
        else:
            run.durable.close()
    return _outcome(run)


def _opened(store: SnapshotStore[Any], label: str, reuse: bool) -> Record | None:
    """The record of a run that goes on; one that is done is begun anew unless asked.

    So is another one that is done: one folder serves a whole optimisation.
    """
    try:
        record = store.open(label)
    except AnotherRun as error:
        if not error.is_done:
            raise
        store.clear()
        record = store.open(label)
    if record is None or record.left != 0 or reuse:
        return record
    try:
        store.clear()
    finally:
        store.close()
    return store.open(label)


def _outcome(run: Run) -> Outcome[Any]:
    """The result of a run that is over, and the report of this process's work.

    Raises:
        MachineError: If its actions have not led to the beginning.
    """
    if run.reached is None or run.reached.cotangent is None:
        raise _without_reverse()
    if run.reached.left:
        raise MachineError(
            f"the stream of actions ended with {run.reached.left} steps left. Pass a "
            "schedule of the machine's length."
        )
    report = replace(
        run.report,
        length=run.length or 0,
        peak_snapshots=run.store.peak_snapshots,
        peak_bytes=run.store.peak_bytes,
        tiers=run.tiers.counts(),
    )
    return Outcome(run.machine.finish(run.reached.cotangent), report)


def _without_reverse() -> MachineError:
    return MachineError(
        "the stream of actions ended without a `Reverse`: there is no cotangent. Pass "
        "a schedule of the machine's length."
    )


def _check_run(plan: object, progress: object) -> None:
    """Refuse what is no plan, and what is no watcher."""
    if not isinstance(plan, type) and getattr(plan, "offload", None) is not None:
        raise PlanError(
            f"`plan={plan!r}` asks for snapshots in the host's memory, which gradients "
            "of `retape.jax` keep. Here a store says where snapshots go: leave "
            "`offload` out, and pass `store` if need be."
        )
    makes = isinstance(plan, Iterable) or hasattr(plan, "schedule")
    if isinstance(plan, str | type) or not makes:
        raise PlanError(
            f"`plan={plan!r}` is not a plan. Pass one, such as "
            "`retape.fixed_space(snapshots=20)`, or a schedule."
        )
    if not (isinstance(progress, bool) or callable(progress)):
        raise PlanError(
            f"`progress={progress!r}` is not valid. Pass `True` for a bar, or a "
            "function that is called with the steps that are done and left."
        )


def _name_of(label: str, plan: object) -> str:
    """A run's label with its plan, as text that another process would write too."""
    title, _, more = label.partition("\n")
    return f"{title} under {_text_of(plan)}" + (f"\n{more}" if more else "")


def _text_of(plan: object) -> str:
    if isinstance(plan, Iterator):
        return "actions given one by one"
    if isinstance(plan, list | tuple):
        actions = cast("Sequence[object]", plan)
        digest = blake2b(digest_size=8)
        for action in actions:
            digest.update(repr(action).encode())
        return f"{len(actions)} actions {digest.hexdigest()}"
    return repr(plan)


_STORES: dict[int, int] = {}
"""The stores in use, by their identity, and the thread of the run that uses each."""

_GUARD = threading.Lock()


@contextmanager
def claimed(store: SnapshotStore[Any]) -> Generator[None]:
    """Claim a store, and the stores that it consists of, for one run.

    Runs of one schedule use the same slots for the same steps, so two of them on one
    store would read each other's states without noticing. Between processes a
    `DiskStore` has a lock of its own.

    Raises:
        StoreError: If another run has it, in this thread or in another.
    """
    claims = list(map(id, store.claims()))
    with _GUARD:
        for claim in claims:
            if claim in _STORES:
                mine = _STORES[claim] == threading.get_ident()
                where = (
                    "one that this run is a part of" if mine else "in another thread"
                )
                raise StoreError(
                    f"`store={store!r}` is in use by another run, {where}. Give each "
                    "run a store of its own."
                )
        _STORES.update(dict.fromkeys(claims, threading.get_ident()))
    try:
        yield
    finally:
        with _GUARD:
            for claim in claims:
                del _STORES[claim]

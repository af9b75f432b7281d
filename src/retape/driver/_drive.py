"""`run`: a machine, a plan and a store, from the first step to the result."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import (
    Any,
    Generic,
    NamedTuple,
    Protocol,
    TypeVar,
    cast,
    runtime_checkable,
)

from retape._errors import MachineError, PlanError
from retape.driver._foresight import foretold
from retape.driver._in_use import claimed
from retape.driver._interrupt import heeded, obey_all
from retape.driver._machine import (
    Machine,
    ResumedMachine,
    TapingMachine,
    cannot_tape,
)
from retape.driver._obey import Loop
from retape.driver._online_forward import find_place, sweep_forward
from retape.driver._progress import Bar, Progress
from retape.driver._proof import AnotherProgram
from retape.driver._report import Report
from retape.driver._resume import skip_done
from retape.driver._verify import Verify, verifier_of
from retape.schedule import OnlineBinomial
from retape.schedule._action import Action
from retape.schedule._cost import Counts
from retape.schedule._online import Online
from retape.storage import Record, SnapshotStore
from retape.storage._any_store import AnyStore, store_of
from retape.storage._base import AnotherRun
from retape.storage._memory import MemoryStore
from retape.storage._tiered import name_tiers

C = TypeVar("C")
A = TypeVar("A")
R = TypeVar("R")


class Outcome(NamedTuple, Generic[R]):
    """The result of `run`: the machine's result, and a report."""

    result: R
    report: Report


class Planner(Protocol):
    """The part of a plan that the driver uses."""

    def resolve(
        self, n: int | None, capsule_bytes: int | None, tape_bytes: int | None
    ) -> tuple[int, int, int | None]: ...

    def schedule(
        self, n: int, capsule_bytes: int | None, tape_bytes: int | None
    ) -> "Counted": ...


@runtime_checkable
class Counted(Protocol):
    """A schedule that knows what it costs."""

    def __iter__(self) -> Iterator[Action]: ...

    def counts(self) -> Counts: ...


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
    _check_machine(machine)
    check_run(plan, progress)
    store = store_of(store)
    kept = MemoryStore[C]() if store is None else store
    title, _, more = (label or type(machine).__name__).partition("\n")
    named = f"{title} under {_named(plan)}" + (f"\n{more}" if more else "")

    def begun() -> Loop[C, A, R]:
        loop = Loop(machine, kept, machine.start(), label=named)
        loop.verifier = verifier_of(verify, fingerprint, kept)
        loop.watch = Bar() if progress is True else (progress or None)
        loop.length = machine.length()
        return loop

    loop = begun()
    with claimed(kept), heeded(loop):
        try:
            return _obeyed(loop, plan, tape_bytes, reuse)
        except AnotherProgram:
            if not (loop.proof and loop.proof.done) or isinstance(plan, Iterator):
                raise
        # The program has changed since: a run that was done has no part in its next.
        if isinstance(machine, ResumedMachine):
            machine.resume(0, False)
        again = begun()
        again.limit = loop.limit
        return _obeyed(again, plan, tape_bytes, reuse=False)


def _obeyed(
    loop: Loop[C, A, R],
    plan: Planner | Iterable[Action],
    tape_bytes: int | None,
    reuse: bool,
) -> Outcome[R]:
    """Run to the end, on a store that no other run uses."""
    name_tiers(loop.store, getattr(plan, "tier_names", ()))
    durable = loop.durable
    record = _begun(durable, loop.label, reuse) if durable else None
    try:
        actions = remaining_actions(loop, plan, tape_bytes, record, durable)
        obey_all(loop, foretold(actions, loop.store))
    except KeyboardInterrupt:
        loop.record()
        raise
    else:
        loop.record()
    finally:
        if durable:
            durable.close()
        else:
            loop.release()
    if loop.reached is None or loop.cotangent is None:
        raise MachineError(
            "the stream of actions ended without a `Reverse`: there is no cotangent. "
            "Pass a schedule of the machine's length."
        )
    if loop.reached.left:
        raise MachineError(
            f"the stream of actions ended with {loop.reached.left} steps left. Pass a "
            "schedule of the machine's length."
        )
    return Outcome(loop.machine.finish(loop.cotangent), loop.finished())


def _begun(store: SnapshotStore[C], label: str, reuse: bool) -> Record | None:
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


def _check_machine(machine: object) -> None:
    methods = ("length", "start", "advance", "reverse", "nbytes", "finish")
    missing = [f"`{each}`" for each in methods if not hasattr(machine, each)]
    if missing:
        raise MachineError(
            f"`{machine!r}` is not a machine: it has no {', '.join(missing)}. See "
            "`retape.driver.Machine`."
        )


def check_run(plan: object, progress: object) -> None:
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


def remaining_actions(
    loop: Loop[C, A, R],
    plan: Planner | Iterable[Action],
    tape_bytes: int | None,
    record: Record | None,
    durable: SnapshotStore[C] | None,
) -> Iterable[Action]:
    """The actions that remain. A run of unknown length is first run to its end."""
    if isinstance(plan, Iterable):
        stream: Iterable[Action] = plan
        if isinstance(plan, Counted):
            _foresee(loop, plan)
    else:
        capsule_bytes = None
        if tape_bytes is not None:
            capsule_bytes = _capsule_bytes(loop)
        capsule_bytes = loop.store.largest(capsule_bytes)
        tape_bytes = loop.store.largest(tape_bytes)
        if loop.length is not None:
            schedule = plan.schedule(loop.length, capsule_bytes, tape_bytes)
            _foresee(loop, schedule)
            stream = schedule
        else:
            online = _online(plan, capsule_bytes, tape_bytes)
            if record is None or record.length is None:
                return _run_to_the_end(loop, online, durable)
            loop.length = record.length
            advances = online.advances(record.length)
            loop.total = None if advances is None else record.length + advances
            stream = online.actions(record.length)
    return skip_done(loop, stream, record, durable) if durable else stream


def _capsule_bytes(loop: Loop[C, A, R]) -> int:
    """What keeping a capsule takes; a store that packs tells by the first one."""
    capsule = loop.look(0)
    return loop.store.capsule_bytes(capsule, loop.machine.nbytes(capsule))


def _foresee(loop: Loop[C, A, R], schedule: Counted) -> None:
    """The work of a schedule; one that this machine cannot obey is refused here."""
    counts = schedule.counts()
    if counts.kept_tapes and not isinstance(loop.machine, TapingMachine):
        raise cannot_tape(loop.machine)
    loop.total = counts.advances + counts.taped


def _online(plan: Planner, capsule_bytes: int | None, tape_bytes: int | None) -> Online:
    """What a plan means for a run whose end is not known."""
    own: Any = getattr(plan, "online", None)
    if own is not None:
        return own(capsule_bytes, tape_bytes)
    alpha, d, _ = plan.resolve(None, capsule_bytes, tape_bytes)
    return OnlineBinomial(d, alpha)


def _run_to_the_end(
    loop: Loop[C, A, R], online: Online, durable: SnapshotStore[C] | None
) -> Iterator[Action]:
    if online.keeps_tapes and not isinstance(loop.machine, TapingMachine):
        raise cannot_tape(loop.machine)
    state, alpha = online.begin(), online.stage
    if durable:
        state = find_place(loop, state, alpha, durable)
    length, state = sweep_forward(loop, state, alpha)
    loop.record()
    more = online.turn_advances(state, length)
    if more is not None:
        loop.total = loop.report.advances + loop.skipped + more + length
    return online.reverse(state, length)


def _named(plan: object) -> str:
    """A plan as text that another process would write too."""
    if isinstance(plan, Iterator):
        return "actions given one by one"
    if isinstance(plan, list | tuple):
        actions = cast("Sequence[object]", plan)
        digest = blake2b(digest_size=8)
        for action in actions:
            digest.update(repr(action).encode())
        return f"{len(actions)} actions {digest.hexdigest()}"
    return repr(plan)

"""The actions that remain of a run, by its plan and by what its store has of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import (
    TYPE_CHECKING,
    Protocol,
    TypeVar,
    cast,
    runtime_checkable,
)

from retape._errors import PlanError
from retape.driver._foresight import foretold
from retape.driver._machine import TapingMachine, cannot_tape
from retape.driver._online_forward import to_the_end
from retape.driver._resuming._interrupt import stoppable
from retape.driver._resuming._resume import skip_done
from retape.schedule._action import Action
from retape.schedule._cost import Counts
from retape.schedule._placing._online import Online
from retape.storage import Record

if TYPE_CHECKING:
    from retape.driver._loop import Run

C = TypeVar("C")
A = TypeVar("A")
R = TypeVar("R")


class Planner(Protocol):
    """The part of a plan that the driver uses."""

    def online(self, capsule_bytes: int | None, tape_bytes: int | None) -> Online: ...

    def schedule(
        self, n: int, capsule_bytes: int | None, tape_bytes: int | None
    ) -> Counted: ...


@runtime_checkable
class Counted(Protocol):
    """A schedule that knows what it costs."""

    def __iter__(self) -> Iterator[Action]: ...

    def counts(self) -> Counts: ...


def remaining(
    run: Run[C, A, R],
    plan: Planner | Iterable[Action],
    tape_bytes: int | None,
    record: Record | None,
) -> Iterable[Action]:
    """The actions that remain; they end early where `retape.interruptible` says so."""
    return stoppable(run, _planned(run, plan, tape_bytes, record))


def _planned(
    run: Run[C, A, R],
    plan: Planner | Iterable[Action],
    tape_bytes: int | None,
    record: Record | None,
) -> Iterable[Action]:
    if isinstance(plan, Iterable):
        actions: Iterable[Action] = plan
        if isinstance(plan, Counted):
            _foresee(run, plan)
    else:
        capsule_bytes = None if tape_bytes is None else _capsule_bytes(run)
        capsule_bytes = run.store.largest(capsule_bytes)
        tape_bytes = run.store.largest(tape_bytes)
        if run.length is not None:
            actions = plan.schedule(run.length, capsule_bytes, tape_bytes)
            _foresee(run, actions)
        else:
            online = plan.online(capsule_bytes, tape_bytes)
            if online.keeps_tapes and not isinstance(run.machine, TapingMachine):
                raise cannot_tape(run.machine)
            if record is None or record.length is None:
                return to_the_end(run, online)
            run.length = record.length
            advances = online.advances(record.length)
            run.total = None if advances is None else record.length + advances
            actions = online.actions(record.length)
    if run.durable is not None:
        actions = skip_done(run, actions, record, run.durable)
    return foretold(actions, run.store)


def _capsule_bytes(run: Run[C, A, R]) -> int:
    """What keeping a capsule takes; a store that packs tells by the first one."""
    capsule = run.look(0)
    return run.store.capsule_bytes(capsule, run.machine.nbytes(capsule))


def _foresee(run: Run[C, A, R], schedule: Counted) -> None:
    """The work of a schedule; one that this machine cannot obey is refused here."""
    counts = schedule.counts()
    if counts.kept_tapes and not isinstance(run.machine, TapingMachine):
        raise cannot_tape(run.machine)
    run.total = counts.advances + counts.taped


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


def name_of(label: str, plan: object) -> str:
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

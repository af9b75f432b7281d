"""Is the program that takes a run up the one that began it? By what it does.

Neither its code nor what it reads can be compared for certain: a constant, a module of
settings, a file, a library, a compiler may have changed. What it does can. With each
snapshot goes a digest of the state one step later, and a record has what the adjoint of
the last step was given, with a digest of what it gave:

    snapshot of step 40     the state before step 40, and a digest of that before 41
    record with 20 left     the state before step 20 and the cotangent after it, and a
                            digest of that before it

So a process that takes the run up runs a step from each old snapshot that it restores,
reverses one step again, and goes on only if the bits agree. The step from a snapshot is
one that the schedule runs next anyway, so it is mostly run no more often.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import index
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from retape._errors import StoreError
from retape.driver._machine import KnownMachine
from retape.storage import Record, SnapshotStore

if TYPE_CHECKING:
    from retape.driver._loop import Run

C = TypeVar("C")
A = TypeVar("A")
R = TypeVar("R")


class AnotherProgram(StoreError):
    """A store holds the run of a program that does something else."""


@dataclass(slots=True)
class Proof(Generic[C, A]):
    """What a run compares with what it was before.

    Attributes:
        machine: The program.
        store: That holds the run.
        old: Steps of snapshots that an earlier process has written, and that have not
            been compared.
        done: Whether the run was done: another program may follow it.
    """

    machine: KnownMachine[C, A, Any]
    store: SnapshotStore[C]
    old: set[int] = field(default_factory=set[int])
    done: bool = False

    def take_up(self, record: Record) -> A:
        """The cotangent that a record leads to.

        Raises:
            StoreError: If the sweep back would begin or go on with another one.
        """
        self.done = record.left == 0
        found = self.machine.taken_up(record.cotangent, record.length)
        what = f"the adjoint of step {record.left}, or of the last state, gives another"
        self._settle(found is not None, f"{what} cotangent")
        assert found is not None
        return found

    def confirm(self, step: int, capsule: C, after: C) -> None:
        """Compare a step from a snapshot of an earlier process with what it was.

        Raises:
            StoreError: If the state after it is another one.
        """
        self.old.discard(step)
        alike = self.machine.agrees(capsule, after)
        self._settle(alike, f"step {step} gives another state")

    def _settle(self, alike: bool, what: str) -> None:
        if not self.store.agree(alike):
            raise AnotherProgram(
                f"`store={self.store!r}` holds a run that another program has begun: "
                f"{what} than it gave there. Undo what has changed since (a constant, "
                "a module, a file, a library), or call `clear()` on the store, and the "
                "run begins anew. A program that gives other bits each time cannot "
                "go on."
            )


def signed(run: Run[C, A, R], step: int, capsule: C) -> C:
    """A capsule for the store, which tells what the step from it does."""
    # What a codec with a loss gives back has other bits than what it was given.
    if run.proof is None or run.store.is_lossy:
        return capsule
    run.proof.old.discard(step)
    return run.proof.machine.sign(*_step_ahead(run, step, capsule))


def confirmed(run: Run[C, A, R], step: int, capsule: C) -> C:
    """A capsule of the store's; one of an earlier process is compared."""
    if run.proof is None or step not in run.proof.old:
        return capsule
    kept, after = _step_ahead(run, step, capsule)
    run.proof.confirm(step, kept, after)
    return kept


def _step_ahead(run: Run[C, A, R], step: int, capsule: C) -> tuple[C, C]:
    """The capsule in memory that the step does not touch, and the one after it.

    That is kept for the next advance.
    """
    began = perf_counter()
    kept, run.ahead = run.copied(capsule), None
    if run.working is capsule:
        run.working, run.borrowed = kept, None
    after, made = run.machine.advance(capsule, 1)
    if run.verifier:
        run.verifier.check(step, step + 1, after)
    if index(made):
        run.ahead = step, after
        run.report.checked += 1
    run.spend(run.phase, began)
    return kept, after

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

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from retape._errors import StoreError
from retape.driver._machine import KnownMachine
from retape.storage import Record, SnapshotStore

C = TypeVar("C")
A = TypeVar("A")


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

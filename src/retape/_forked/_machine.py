"""A machine whose capsules are processes, the store that keeps them, and its runs."""

# Messages are of any type, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.reduction import HAVE_SEND_HANDLE
from time import sleep
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from retape._errors import (
    MachineError,
    PlanError,
    SnapshotError,
    StoreError,
    UnsupportedError,
)
from retape._forked import _system as system
from retape._forked._serve import serve
from retape.driver import run
from retape.driver._machine import Machine
from retape.driver._progress import Progress
from retape.driver._run import Outcome
from retape.driver._steps._program import Program
from retape.driver._steps._step_machine import StepMachine
from retape.plan._base import Plan
from retape.plan._constructors import fixed_space
from retape.storage import Place
from retape.storage._memory import MemoryStore

A = TypeVar("A")
R = TypeVar("R")


class Worker:
    """A process that holds a capsule, as the caller's process sees it.

    Attributes:
        end: The socket over which it is asked; a process whose socket is closed, or
            forgotten, ends.
        pid: The process.
        step: The step before which its capsule stands.
    """

    def __init__(self, end: Connection, pid: int, step: int) -> None:
        self.end, self.pid, self.step = end, pid, step

    def ask(self, *message: Any, passed: Connection | None = None) -> Any:
        """Send a message, and the end of a pipe if it takes one; wait for the answer.

        Raises:
            MachineError: If the process has died.
            StoreError: If there may be no more processes or open files.
        """
        try:
            self.end.send(message)
            if passed is not None:
                system.send(self.end, passed)
            fine, answer = self.end.recv()
        except StoreError:
            raise
        except (EOFError, OSError) as error:
            raise MachineError(
                f"process {self.pid}, which held the state before step {self.step}, "
                "has ended: it was killed, or a step has crashed. Look for the "
                "kernel's words about memory, and call again."
            ) from error
        if not fine:
            raise answer
        return answer

    def fork(self) -> Worker:
        """Double the process; the new one holds the same capsule.

        Raises:
            StoreError: If there may be no more processes or open files.
        """
        mine, theirs = system.pipe()
        with theirs:
            pid = self.ask("fork", passed=theirs)
        return Worker(mine, pid, self.step)

    def is_alive(self) -> bool:
        """Tell whether it still waits for a message: one that has ended has hung up."""
        try:
            return not self.end.poll()
        except OSError:
            return False


@dataclass(slots=True)
class ProcessMachine(Generic[A, R]):
    """A machine that runs another one in processes. Its capsules are `Worker`s.

    The driver takes it for an `OverwritingMachine`: to copy a capsule is to fork.

    Attributes:
        machine: The machine, such as a `StepMachine`: in the place of its last stage it
            is asked to reverse no steps from the state at the end, without a cotangent.
    """

    machine: Machine[Any, A, R]
    workers: WeakSet[Worker] = field(default_factory=WeakSet, init=False)
    _pids: set[int] = field(default_factory=set[int], init=False)
    _adopts: bool | None = field(default=None, init=False)
    _written: int | None = field(default=None, init=False)

    def length(self) -> int | None:
        return self.machine.length()

    def start(self) -> Worker:
        refuse_threads()
        if self._adopts is None:
            self._adopts = system.adopt_orphans(True)
        mine, theirs = system.pipe()
        pid = system.fork()
        if pid == 0:
            mine.close()
            for other in list(self.workers):
                other.end.close()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            serve(self.machine, theirs)
        theirs.close()
        return self._known(Worker(mine, pid, 0))

    def copy_capsule(self, capsule: Worker) -> Worker:
        return self._known(capsule.fork())

    def advance(self, capsule: Worker, steps: int) -> tuple[Worker, int]:
        made = capsule.ask("advance", steps)
        capsule.step += made
        return capsule, made

    def reverse(self, capsule: Worker, steps: int, cotangent: A | None) -> A:
        # A tape is a process for each step, with the state before it.
        kept: list[Worker] = []
        last = cotangent is None
        for _ in range(steps if last else steps - 1):
            kept.append(self.copy_capsule(capsule))
            self.advance(capsule, 1)
        if last:
            # The run is over here: no step is left, and the sweep is seeded.
            cotangent = capsule.ask("reverse", 0, None)
            capsule.end.close()
        else:
            kept.append(capsule)
        while kept:
            worker = kept.pop()
            cotangent = worker.ask("reverse", 1, cotangent)
            worker.end.close()
        assert cotangent is not None
        return cotangent

    def nbytes(self, capsule: Worker) -> int:
        """The bytes of the pages that the first step writes to, of any state."""
        if self._written is None:
            probe = self.copy_capsule(capsule)
            before = probe.ask("private")
            made = self.advance(probe, 1)[1]
            self._written = max(0, probe.ask("private") - before) if made else 0
            probe.end.close()
        return self._written

    def finish(self, cotangent: A) -> R:
        return self.machine.finish(cotangent)

    def close(self) -> None:
        """End all processes, also those in the middle of a step, and wait for them."""
        for worker in list(self.workers):
            if not worker.end.closed:
                with suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)
            worker.end.close()
        while self._pids:
            self._pids = {pid for pid in self._pids if not system.is_gone(pid)}
            sleep(0.001 if self._pids else 0)
        if self._adopts is False:
            system.adopt_orphans(False)
        self._adopts = None

    def _known(self, worker: Worker) -> Worker:
        self.workers.add(worker)
        self._pids.add(worker.pid)
        return worker


class WorkerStore(MemoryStore[Worker]):
    """Keeps workers, and knows which of them have died: their states are made again."""

    def get(self, place: Place) -> Worker:
        worker = super().get(place)
        if not worker.is_alive():
            raise SnapshotError(
                f"process {worker.pid}, which held the state before step {place.step}, "
                "has ended. Its state is recomputed from an earlier one."
            )
        return worker


_HARMFUL = ("libgomp", "libiomp5", "libomp.so", "libmkl")
"""Libraries whose threads a child lacks after a fork, and would wait for."""


def refuse_threads() -> None:
    """Refuse what cannot be forked.

    Raises:
        UnsupportedError: If there is no `fork`, or there are threads that a child would
            lack.
    """
    if not hasattr(os, "fork") or not HAVE_SEND_HANDLE:
        raise UnsupportedError(
            "`Program(hidden=True)` forks processes, and this platform cannot. Use a "
            "POSIX system, or a step whose state is its argument."
        )
    others = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
    if others:
        raise UnsupportedError(
            f"`Program(hidden=True)` forks this process, and it has other threads "
            f"({', '.join(others)}), which a child lacks. Call it before they are "
            "started, or in a process of its own."
        )
    if "jax" in sys.modules or "jaxlib" in sys.modules:
        raise UnsupportedError(
            "`Program(hidden=True)` forks this process, and JAX, which is imported, "
            "has threads that a child lacks. Run it in a process without JAX."
        )
    harmful = _mapped(_HARMFUL)
    if harmful and _threads() > 1 and os.environ.get("OMP_NUM_THREADS") != "1":
        raise UnsupportedError(
            f"`Program(hidden=True)` forks this process, and `{harmful}` may have "
            "threads that a child lacks. Set `OMP_NUM_THREADS=1` before the start."
        )


def _mapped(names: tuple[str, ...]) -> str:
    """The first of some libraries that is loaded; nothing where it is not told."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as lines:
            text = lines.read()
    except OSError:
        return ""
    return next((name for name in names if name in text), "")


def _threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


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

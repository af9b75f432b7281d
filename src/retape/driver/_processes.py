"""Snapshots of what nobody can copy: forked processes.

The state of many codes lies in COMMON blocks, in static variables or in objects without
a copy. Nobody can read it, but the operating system can double it: a snapshot is a
process that waits. To go on from it, it forks once more, and one of the two runs on.
The pages that neither of them writes to are shared.

The caller's process steers and runs no step: its own hidden state is as before when the
run is over. A worker holds one capsule of the machine that it was forked with, and does
what it is told over a socket: advance, reverse, fork. What passes between processes is
the cotangent. A worker whose socket is closed ends, so none outlives the caller, in
whatever way that ends.
"""

# Messages are of any type, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from time import sleep
from typing import Any, Generic, NoReturn, TypeVar
from weakref import WeakSet

from retape._errors import MachineError, SnapshotError, StoreError, UnsupportedError
from retape.driver._machine import Machine
from retape.storage import MemoryStore

A = TypeVar("A")
R = TypeVar("R")


class Worker:
    """A process that holds a capsule, as the caller's process sees it.

    Attributes:
        pid: The process.
        step: The step before which its capsule stands.
    """

    def __init__(self, end: socket.socket, pid: int, step: int) -> None:
        self.pid, self.step = pid, step
        self._socket: socket.socket | None = end
        self._connection = Connection(os.dup(end.fileno()))

    def ask(self, *message: Any) -> Any:
        """Send a message, and wait for its answer.

        Raises:
            MachineError: If the process has died.
        """
        try:
            self._connection.send(message)
            fine, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._dead() from error
        if not fine:
            raise answer
        return answer

    def fork(self) -> Worker:
        """Double the process; the new one holds the same capsule.

        Raises:
            StoreError: If there may be no more processes or open files.
        """
        try:
            mine, theirs = socket.socketpair()
        except OSError as error:
            raise _no_more("open files", error) from error
        assert self._socket is not None
        try:
            with theirs:
                self._connection.send(("fork",))
                socket.send_fds(self._socket, [b"f"], [theirs.fileno()])
            fine, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            mine.close()
            raise self._dead() from error
        if not fine:
            mine.close()
            raise _no_more("processes", answer)
        return Worker(mine, answer, self.step)

    def is_alive(self) -> bool:
        """Whether it still waits for a message: one that has ended has hung up."""
        try:
            return not self._connection.poll()
        except OSError:
            return False

    def is_open(self) -> bool:
        """Whether nobody has hung up here."""
        return self._socket is not None

    def close(self) -> None:
        """Hang up: a process that waits ends."""
        if self._socket is not None:
            self._socket.close()
            self._connection.close()
            self._socket = None

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()

    def _dead(self) -> MachineError:
        return MachineError(
            f"process {self.pid}, which held the state before step {self.step}, has "
            "ended: it was killed, or a step has crashed. Look for the kernel's words "
            "about memory, and call again."
        )


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
        _refuse_threads()
        if self._adopts is None:
            self._adopts = _adopt(True)
        try:
            mine, theirs = socket.socketpair()
            pid = _fork()
        except OSError as error:
            raise _no_more("processes", error) from error
        if pid == 0:
            mine.close()
            for other in list(self.workers):
                other.close()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            _serve(self.machine, theirs)
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
            capsule.close()
        else:
            kept.append(capsule)
        while kept:
            worker = kept.pop()
            cotangent = worker.ask("reverse", 1, cotangent)
            worker.close()
        assert cotangent is not None
        return cotangent

    def nbytes(self, capsule: Worker) -> int:
        """The bytes of the pages that the first step writes to, of any state."""
        if self._written is None:
            probe = self.copy_capsule(capsule)
            before = probe.ask("private")
            made = self.advance(probe, 1)[1]
            self._written = max(0, probe.ask("private") - before) if made else 0
            probe.close()
        return self._written

    def finish(self, cotangent: A) -> R:
        return self.machine.finish(cotangent)

    def close(self) -> None:
        """End all processes, also those in the middle of a step, and wait for them."""
        for worker in list(self.workers):
            if worker.is_open():
                with suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)
            worker.close()
        while self._pids:
            self._pids = {pid for pid in self._pids if not _is_gone(pid)}
            sleep(0.001 if self._pids else 0)
        if self._adopts is False:
            _adopt(False)
        self._adopts = None

    def _known(self, worker: Worker) -> Worker:
        self.workers.add(worker)
        self._pids.add(worker.pid)
        return worker


class WorkerStore(MemoryStore[Worker]):
    """Keeps workers, and knows which of them have died: their states are made again."""

    def get(self, step: int, slot: int, tier: str, *, tape: bool = False) -> Worker:
        worker = super().get(step, slot, tier, tape=tape)
        if not worker.is_alive():
            raise SnapshotError(
                f"process {worker.pid}, which held the state before step {step}, has "
                "ended. Its state is recomputed from an earlier one."
            )
        return worker


def _serve(machine: Machine[Any, Any, Any], end: socket.socket) -> NoReturn:
    """Be a worker: hold a capsule, and do what is asked, until the caller hangs up."""
    capsule: Any = None
    children: list[int] = []
    connection = Connection(os.dup(end.fileno()))
    while True:
        try:
            name, *arguments = connection.recv()
        except (EOFError, OSError):
            _leave(children)
        children = [pid for pid in children if not _reaped(pid)]
        answer: tuple[bool, Any]
        try:
            if name == "fork":
                _, (handle, *_), _, _ = socket.recv_fds(end, 1, 1)
                pid = _fork_to(handle)
                if pid == 0:
                    connection.close()
                    end.close()
                    end = socket.socket(fileno=handle)
                    connection, children = Connection(os.dup(handle)), []
                    continue
                children.append(pid)
                answer = True, pid
            elif name == "private":
                answer = True, _private_bytes()
            else:
                if capsule is None:
                    capsule = machine.start()
                if name == "advance":
                    capsule, made = machine.advance(capsule, *arguments)
                    answer = True, int(made)
                else:
                    answer = True, machine.reverse(capsule, *arguments)
        except BaseException as error:
            answer = False, error
        try:
            connection.send(answer)
        except OSError:
            _leave(children)
        except Exception as error:  # What cannot be pickled raises anything.
            connection.send((False, _cannot_send(answer, error)))


def _cannot_send(answer: tuple[bool, Any], error: Exception) -> Exception:
    fine, value = answer
    what = "The cotangent" if fine else f"The error `{value!r}` of a step"
    return MachineError(
        f"{what} cannot be sent from the process of a snapshot to the caller's: "
        f"{error}. Let cotangents and errors be what `pickle` can take."
    )


def _fork() -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Threads that are known to do harm are refused before.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _fork_to(handle: int) -> int:
    """Fork for a child that gets a handle; the parent's is closed."""
    try:
        pid = _fork()
    except OSError:
        os.close(handle)
        raise
    if pid:
        os.close(handle)
    return pid


def _leave(children: Sequence[int]) -> NoReturn:
    for pid in children:
        _reaped(pid)
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _is_gone(pid: int) -> bool:
    """Whether a process has ended and is waited for, by whoever its parent is."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        # Not a child of ours, or not yet: its parent is a worker.
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False


def _adopt(wanted: bool) -> bool:
    """Be the parent of workers whose own parent has ended; was it so before?

    Otherwise they would be the first process's, which in a container may wait for
    none. Linux only; elsewhere the first process waits.
    """
    if not sys.platform.startswith("linux"):
        return True
    prctl = ctypes.CDLL(None).prctl
    before = ctypes.c_int()
    prctl(_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    prctl(_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)
    return bool(before.value)


_SET_CHILD_SUBREAPER, _GET_CHILD_SUBREAPER = 36, 37
"""Of `linux/prctl.h`."""


def _private_bytes() -> int:
    """The memory that this process shares with nobody; 0 where it is not told."""
    try:
        with open("/proc/self/smaps_rollup", encoding="ascii") as lines:
            fields = [line.split() for line in lines if line.startswith("Private_")]
    except OSError:
        return 0
    return 1024 * sum(int(count) for _, count, *_ in fields)


def _no_more(what: str, error: object) -> StoreError:
    return StoreError(
        f"there can be no more {what} for snapshots ({error}). Use a plan with fewer "
        "snapshots and `stage=1`, or raise the limit (`ulimit`)."
    )


_HARMFUL = ("libgomp", "libiomp5", "libomp.so", "libmkl")
"""Libraries whose threads a child lacks after a fork, and would wait for."""


def _refuse_threads() -> None:
    """Refuse what cannot be forked.

    Raises:
        UnsupportedError: If there is no `fork`, or there are threads that a child would
            lack.
    """
    if not hasattr(os, "fork") or not hasattr(socket, "send_fds"):
        raise UnsupportedError(
            '`snapshots="process"` forks processes, and this platform cannot. Use a '
            "POSIX system, or a step whose state is its argument."
        )
    others = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
    if others:
        raise UnsupportedError(
            f'`snapshots="process"` forks this process, and it has other threads '
            f"({', '.join(others)}), which a child lacks. Call it before they are "
            "started, or in a process of its own."
        )
    if "jax" in sys.modules or "jaxlib" in sys.modules:
        raise UnsupportedError(
            '`snapshots="process"` forks this process, and JAX, which is imported, has '
            "threads that a child lacks. Run it in a process without JAX."
        )
    harmful = _mapped(_HARMFUL)
    if harmful and _threads() > 1 and os.environ.get("OMP_NUM_THREADS") != "1":
        raise UnsupportedError(
            f'`snapshots="process"` forks this process, and `{harmful}` may have '
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

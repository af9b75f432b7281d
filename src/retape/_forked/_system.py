"""Calls of the operating system: fork, wait, adopt, count private memory."""

import ctypes
import os
import select
import signal
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle

from retape._errors import StoreError

try:
    import fcntl
except ImportError:  # Not POSIX: nothing is forked there.
    fcntl = None


def fork() -> int:
    """Fork, with what was printed written once: 0 in the child, its number here.

    Raises:
        StoreError: If there may be no more processes.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings(), _up_to_a_limit("processes"):
        # Threads that are known to do harm are refused before.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def pipe() -> tuple[Connection, Connection]:
    """Two ends, over which messages and open files are sent.

    Raises:
        StoreError: If there may be no more open files.
    """
    with _up_to_a_limit("open files"):
        return Pipe()


def send(end: Connection, other: Connection) -> None:
    """Send the end of another pipe over this one.

    Raises:
        StoreError: If there may be no more open files.
    """
    with _up_to_a_limit("open files"):
        send_handle(end, other.fileno(), 0)


def received(end: Connection) -> Connection:
    """The end of another pipe, sent over this one.

    Raises:
        StoreError: If there may be no more open files.
    """
    with _up_to_a_limit("open files"):
        return Connection(recv_handle(end))


def is_gone(pid: int) -> bool:
    """Tell whether a process has ended and is waited for, by whoever its parent is."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        # Not a child of ours, or not yet: its parent is a worker.
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False


def end_when_hung_up() -> None:
    """Let this process end once the other side of a `watched` socket has gone."""
    if hasattr(signal, "SIGIO"):
        signal.signal(signal.SIGIO, lambda number, frame: os._exit(0))


@contextmanager
def watched(end: Connection) -> Generator[None]:
    """Have the system signal it if the other side of a socket goes meanwhile.

    An advance may take hours, and nobody would wait for it any more.
    """
    if fcntl is None or not hasattr(os, "O_ASYNC"):
        yield
        return
    flags = fcntl.fcntl(end, fcntl.F_GETFL)
    fcntl.fcntl(end, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(end, fcntl.F_SETFL, flags | os.O_ASYNC)
    try:
        waits = select.poll()  # Not `select`, which knows 1024 files.
        waits.register(end, select.POLLIN)
        if waits.poll(0):
            os._exit(0)  # It has gone before, since it says nothing before the answer.
        yield
    finally:
        fcntl.fcntl(end, fcntl.F_SETFL, flags)


def adopt_orphans(wanted: bool) -> bool:
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


def private_bytes() -> int:
    """The memory that this process shares with nobody; 0 where it is not told."""
    try:
        with open("/proc/self/smaps_rollup", encoding="ascii") as lines:
            fields = [line.split() for line in lines if line.startswith("Private_")]
    except OSError:
        return 0
    return 1024 * sum(int(count) for _, count, *_ in fields)


@contextmanager
def _up_to_a_limit(what: str) -> Generator[None]:
    """Tell a limit of the operating system as one to the snapshots."""
    try:
        yield
    except ConnectionError:  # nobody is at the other end any more
        raise
    except (OSError, RuntimeError) as error:  # the latter: a file that did not arrive
        raise StoreError(
            f"there can be no more {what} for snapshots ({error}). Use a plan with "
            "fewer snapshots and `stage=1`, or raise the limit (`ulimit`)."
        ) from error

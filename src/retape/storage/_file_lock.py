"""Locks that end with their process, however that ends, and directory flushes.

A system without them, such as Windows, is refused: a lock that outlives a killed
process would keep its successor out, and no lock would let two runs mix their files.
"""

import os
from pathlib import Path
from weakref import WeakSet

try:
    import fcntl
except ImportError:  # not POSIX
    fcntl = None


class NoLock(OSError):
    """This platform has no lock that ends with its process."""


class Lock:
    """A lock on a file, made if it is not there, until `release` or the process's end.

    A forked child does not have it: it closes its copy of the handle, which would
    otherwise keep the lock after its parent's end.

    Raises:
        BlockingIOError: If another process has it.
        OSError: If the file cannot be made, or the platform has no locks.
    """

    def __init__(self, path: Path) -> None:
        if fcntl is None:
            raise NoLock("this platform has no `fcntl` for a lock")
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        self._handle: int | None = os.open(path, flags, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            self.release()
            raise
        _HELD.add(self)

    def release(self) -> None:
        """Give it up."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


_HELD: WeakSet[Lock] = WeakSet()


def _release_in_child() -> None:
    for held in list(_HELD):
        held.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

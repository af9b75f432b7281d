"""Locks and directory flushes, which differ between operating systems.

POSIX has `fcntl`, Windows `msvcrt`; a lock of either ends with its process, however
that ends. A platform with neither is refused: a lock that outlives a killed process
would keep its successor out, and no lock would let two runs mix their files.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Any
from weakref import WeakSet


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
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        self._handle: int | None = os.open(path, flags, 0o644)
        try:
            _take(self._handle)
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
    """Make the names in a directory durable, where directories can be flushed.

    Windows cannot open one; there a rename is durable with the file system's journal.
    """
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:
        if os.name == "nt":
            return
        raise
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _take(handle: int) -> None:
    posix, windows = _module("fcntl"), _module("msvcrt")
    if posix is not None:
        posix.flock(handle, posix.LOCK_EX | posix.LOCK_NB)
    elif windows is not None:
        try:
            windows.locking(handle, windows.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(str(error)) from error
    else:
        raise NoLock("this platform has neither `fcntl` nor `msvcrt` for a lock")


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None

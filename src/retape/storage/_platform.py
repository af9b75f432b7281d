"""What operating systems do differently: keeping a second process out, and flushing.

POSIX has `fcntl`, Windows `msvcrt`; a lock of either ends with its process, however
that ends. A platform with neither is refused: a lock that outlives a killed process
would keep its successor out, and no lock would let two runs mix their files.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Any


class NoLock(OSError):
    """This platform has no lock that ends with its process."""


def lock(path: Path) -> int:
    """Lock a file, made if it is not there, until `unlock` or the process's end.

    Returns:
        A handle for `unlock`.

    Raises:
        BlockingIOError: If another process has it.
        OSError: If the file cannot be made, or the platform has no locks.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _take(handle)
    except BaseException:
        os.close(handle)
        raise
    return handle


def unlock(handle: int) -> None:
    """Give a lock up."""
    os.close(handle)


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

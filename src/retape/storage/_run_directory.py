"""The directory of a run: its lock, and files that are whole or not there.

A file is written to a temporary name, flushed to the device and renamed, so that a
process that is killed leaves the old one or the new one. A lock that the operating
system releases when its process ends keeps a second process out. A system without such
locks, such as Windows, is refused: a lock that outlives a killed process would keep its
successor out, and no lock would let two runs mix their files.
"""

import errno
import io
import os
from pathlib import Path
from typing import Any
from weakref import WeakSet

from retape._errors import SnapshotError, StoreError
from retape.storage._base import AnotherRun, Key
from retape.storage._codec import decode, label_in, read_label

try:
    import fcntl
except ImportError:  # not POSIX
    fcntl = None

RECORD = "record.npz"
RECORD_BEFORE = "record-before.npz"


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


class Folder:
    """The files of one run by their names, on whatever keeps them."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process: int | None = None

    def claim(self) -> None:
        """Keep all other processes out, until `release` or this process's end.

        Raises:
            StoreError: If another process, or this one, has it, or it cannot be made.
        """
        if self._process == os.getpid():
            raise StoreError(
                f"`{self}` is in use by another run of this store. Give each run a "
                "folder of its own."
            )
        self._take()
        self._process = os.getpid()

    def release(self) -> None:
        """Let others in; the files stay."""
        self._process = None
        self._give_up()

    def is_claimed(self) -> bool:
        """Whether `claim` was called, by this process or the one it was forked from."""
        return self._process is not None

    def _take(self) -> None:
        """Take the folder, which this process has not."""
        raise NotImplementedError

    def _give_up(self) -> None:
        """Let others take it."""
        raise NotImplementedError

    def _refuse_forked_child(self) -> None:
        """Keep a forked child from using what its parent has claimed."""
        if self._process not in (None, os.getpid()):
            raise StoreError(
                f"`{self}` is in use by the process that this one was forked from. "
                "Give each process a folder of its own."
            )

    def names(self) -> set[str]:
        """The names of all files."""
        raise NotImplementedError

    def contents(self, name: str) -> bytes:
        """The bytes of a file.

        Raises:
            SnapshotError: If it is not there, or not a file.
        """
        raise NotImplementedError

    def write(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all."""
        raise NotImplementedError

    def unlink(self, name: str) -> None:
        """Remove a file, if it is there."""
        raise NotImplementedError

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        raise NotImplementedError

    def rename(self, name: str, to: str) -> None:
        """Give a file another name, in the place of what has it."""
        raise NotImplementedError

    def remove_unfinished(self) -> None:
        """Remove what a killed process has left half done."""

    def has(self, key: Key) -> bool:
        """Whether there is a file of this state or tape."""
        return self.exists(self.name(key))

    def label(self, name: str) -> dict[str, Any]:
        """The label of a file; nothing if it cannot be read."""
        try:
            data = self.contents(name)
        except StoreError:
            return {}
        return label_in(io.BytesIO(data), len(data))

    def name(self, key: Key) -> str:
        """The name of a state or a tape."""
        return f"{stem_of(key)}.npz"

    def where(self, key: Key) -> str:
        """Where it is, for messages."""
        return f"{self}/{self.name(key)}"

    def get(self, key: Key) -> tuple[Any, dict[str, Any]]:
        """A state or a tape, and its label, as `read`."""
        return self.read(self.name(key))

    def put(self, key: Key, data: bytes) -> None:
        """Write a state or a tape, as `write`."""
        self.write(self.name(key), data)

    def remove(self, key: Key) -> None:
        """Remove a state or a tape, if it is there."""
        self.unlink(self.name(key))

    def snapshots(self, suffix: str = ".npz") -> set[Key]:
        """The states and tapes that have a file; one of another name is not ours."""
        found: set[Key] = set()
        for name in self.names():
            stem, dot, last = name.partition(".")
            kind, _, step = stem.partition("-")
            if dot + last == suffix and kind in ("step", "tape") and step.isdigit():
                key = int(step), kind == "tape"
                if self.name(key) == f"{stem}.npz":
                    found.add(key)
        return found

    def read(self, name: str) -> tuple[Any, dict[str, Any]]:
        """The value in a file, and its label.

        Raises:
            SnapshotError: If it is lost, damaged or not a snapshot.
        """
        return decode(self.contents(name), f"{self}/{name}")

    def read_record(self) -> tuple[Any, dict[str, Any]] | None:
        """The last record, or the one before it if the last one is damaged."""
        there = self.names()
        if RECORD_BEFORE not in there:
            return self._record(RECORD) if RECORD in there else None
        if RECORD in there:
            try:
                return self._record(RECORD)
            except SnapshotError:
                found = self._record(RECORD_BEFORE)
                # Or it would take the place of the good one.
                self.unlink(RECORD)
                return found
        return self._record(RECORD_BEFORE)

    def _record(self, name: str) -> tuple[Any, dict[str, Any]]:
        """What a file has that is a record: a snapshot may have been put there."""
        value, label = self.read(name)
        if "step" in label or "tape" in label:
            raise SnapshotError(
                f"`{self}/{name}` is a snapshot and no record of a run. Put the record "
                "back from a copy of yours, or remove the directory."
            )
        return value, label

    def write_record(self, data: bytes) -> None:
        """Write the record; the one that was the last is now the one before.

        Raises:
            StoreError: If it cannot be written.
        """
        if self.exists(RECORD):
            self.rename(RECORD, RECORD_BEFORE)
        self.write(RECORD, data)

    def remove_last_record(self) -> None:
        """Remove the last record: the one before it is now the last."""
        self.unlink(RECORD)

    def remove_records(self) -> None:
        """Remove both records; snapshots without one are a run at its beginning."""
        for name in (RECORD_BEFORE, RECORD):
            self.unlink(name)


def stem_of(key: Key) -> str:
    """What the name of a snapshot's file, and of the folder of its arrays, begins with.

    Examples:
        >>> stem_of((7, False)), stem_of((7, True))
        ('step-000000000007', 'tape-000000000007')
    """
    step, tape = key
    return f"{'tape' if tape else 'step'}-{step:012d}"


def _check_local(path: str) -> None:
    """Refuse what would be a directory of a strange name, or the one that one is in."""
    if "://" in path:
        raise StoreError(
            f"`path={path!r}` is a URL, and this store is a directory of this machine. "
            f"Write `retape.storage.RemoteStore({path!r})`."
        )
    if not path:
        raise StoreError(
            "`path=''` is not a path. Write `retape.DiskStore(\".\")` for the "
            "directory that the process is in."
        )


class RunDirectory(Folder):
    """Files of one run, claimed by one process at a time.

    Attributes:
        path: The directory, `~` in it the user's own; made when it is claimed.

    Raises:
        StoreError: If the path is a URL, or empty.
    """

    __slots__ = ("_lock", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        _check_local(os.fspath(path))
        self.path = Path(path).expanduser()
        self._lock: Lock | None = None

    def __str__(self) -> str:
        return str(self.path)

    def _take(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = Lock(self.path / "lock")
        except BlockingIOError as error:
            raise StoreError(
                f"`{self}` is in use by another process, or another store of this one. "
                "Wait for it to end, or use another directory."
            ) from error
        except NoLock as error:
            raise StoreError(
                f"`{self}` cannot be used: {error}. Use a `MemoryStore`, or a POSIX "
                "system."
            ) from error
        except OSError as error:
            raise failed(self.path, "used", error) from error

    def _give_up(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def exists(self, name: str) -> bool:
        return (self.path / name).exists()

    def label(self, name: str) -> dict[str, Any]:
        """The label of a file, its arrays left unread; nothing if it cannot be read."""
        return read_label(self.path / name)

    def remove_unfinished(self) -> None:
        """Remove the temporary files that a killed process has left."""
        names = [self.name(key) for key in self.snapshots(".part")]
        for name in (*names, RECORD, RECORD_BEFORE):
            self.unlink(str(Path(name).with_suffix(".part")))

    def unlink(self, name: str) -> None:
        unlink(self.path / name)

    def names(self) -> set[str]:
        return {file.name for file in self.path.glob("*")}

    def contents(self, name: str) -> bytes:
        """The bytes of a file.

        Raises:
            SnapshotError: If it is not there, or a link.
            StoreError: If it cannot be read.
        """
        self._refuse_forked_child()
        file = self.path / name
        if file.is_symlink():
            raise SnapshotError(
                f"`{file}` is a symbolic link, and this library makes none. Remove "
                "it; its state is recomputed."
            )
        try:
            return file.read_bytes()
        except FileNotFoundError as error:
            raise SnapshotError(
                f"`{file}` is not there. Its state is recomputed from an earlier one."
            ) from error
        except OSError as error:
            raise failed(file, "read", error) from error

    def write(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all.

        Raises:
            StoreError: If it cannot be written.
        """
        self._refuse_forked_child()
        file = self.path / name
        part = file.with_suffix(".part")
        try:
            # Made anew: a link of this name would lead to a file of somebody else's.
            part.unlink(missing_ok=True)
            with part.open("xb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            part.replace(file)
            # The name is durable only once the directory is flushed too.
            sync_directory(self.path)
        except OSError as error:
            _remove(part)
            raise failed(file, "written", error) from error

    def rename(self, name: str, to: str) -> None:
        try:
            (self.path / name).replace(self.path / to)
        except OSError as error:
            raise failed(self.path / name, "written", error) from error


def failed(file: Path, what: str, error: OSError) -> StoreError:
    """A refusal of the operating system, as an error of ours."""
    advice = next((text for codes, text in _ADVICE if error.errno in codes), _MEND)
    return StoreError(f"`{file}` cannot be {what}: {error.strerror or error}. {advice}")


_GOES_ON = "and call again: the run goes on where it was."
_MEND = f"Correct the cause, {_GOES_ON}"
_ADVICE = (
    ((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), f"Free some space, {_GOES_ON}"),
    ((errno.EACCES, errno.EPERM, errno.EROFS), f"Correct the permissions, {_GOES_ON}"),
    (
        (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.ENAMETOOLONG),
        "Pass the name of a directory of the run's own, which is there or can be made; "
        "what else has a name that a run's files have is to be moved away.",
    ),
)
"""What to do, by what the system says."""


def unlink(file: Path) -> None:
    """Remove a file, if it is there.

    Raises:
        StoreError: If it cannot be removed: it may be a folder, or another's.
    """
    try:
        file.unlink(missing_ok=True)
    except IsADirectoryError as error:
        raise failed(file, "removed", error) from error
    except OSError as error:
        # Some systems say of a folder that it is not permitted.
        kind = errno.EISDIR if file.is_dir() else error.errno
        raise failed(file, "removed", OSError(kind, error.strerror)) from error


def another_run(
    directory: object, kept: str, asked: str, is_done: bool = False
) -> AnotherRun:
    """The refusal of a directory, with what differs: lines of the two labels."""
    (one, *before), (other, *now) = kept.splitlines() or [""], asked.splitlines()
    differ = {line.partition(": ")[0]: None for line in now if line not in before}
    differ |= {line.partition(": ")[0]: None for line in before if line not in now}
    names = ", ".join(differ)
    if one == other:
        what = f"another run, of `{one}`: they differ in {names}"
    else:
        what = f"another run, `{one}`, and this one is `{other}`"
        what += f"; they differ in {names}" if names else ""
    return AnotherRun(
        f"`{directory}` holds {what}. Use another directory, or remove that one.",
        is_done,
    )


def _remove(part: Path) -> None:
    try:
        part.unlink(missing_ok=True)
    except OSError:
        return  # The write has failed already; that is the error to report.

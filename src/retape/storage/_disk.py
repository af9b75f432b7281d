"""A store on disk, which a run that was killed finds again.

One file per snapshot, named for its step, written to a temporary file, flushed to the
device and renamed: whole or not at all. A lock that the operating system releases when
its process ends keeps a second process out.

A run that is done leaves its last record, so that even a process that dies before it
has used the result does not lose it: the same call gives it again, without running.
`clear`, or removing the directory, begins anew.
"""

import os
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Generic, TypeAlias, TypeVar

from .._bytes import format_bytes, parse_bytes
from .._errors import SnapshotError, StoreError
from ._base import check_capacities
from ._codec import decode, encode, read_label
from ._durable import Record
from ._platform import NoLock, lock, sync_directory, unlock

C = TypeVar("C")

_RECORD = "record.npz"

Key: TypeAlias = tuple[str, int]
"""What a file holds, a state ("step") or a "tape", and the step at which it begins."""


@dataclass(slots=True)
class DiskStore(Generic[C]):
    """Keeps each snapshot in a file of its own.

    Capsules and cotangents are trees of NumPy arrays and plain Python values, or are
    turned into such by `pack` and back by `unpack`.

    Args:
        path: A directory of the run's own; made if it is not there.
        capacity: The most snapshots to hold, or `None`.
        capacity_bytes: The most bytes of arrays, or a text such as "2 GiB", or `None`;
            a file takes about 1 kB more.
        every: The record of how far the run has come is written this many seconds after
            the last one, and whenever four dropped snapshots wait for it.
        pack: From a capsule to a tree of arrays.
        unpack: The inverse.

    Example:
        >>> import tempfile
        >>> from retape.storage import DiskStore
        >>> with tempfile.TemporaryDirectory() as path:
        ...     store = DiskStore(path)
        ...     _ = store.open("an example")
        ...     store.put(7, 0, "disk", (1, 2.5), 16)
        ...     store.get(7, 0, "disk")
        (1, 2.5)
    """

    path: str | os.PathLike[str]
    capacity: int | None = None
    capacity_bytes: int | str | None = None
    every: float = 2.0
    pack: Callable[[C], Any] | None = None
    unpack: Callable[[Any], C] | None = None
    peak_snapshots: int = field(default=0, init=False)
    peak_bytes: int = field(default=0, init=False)
    nbytes: int = field(default=0, init=False)
    _label: str = field(default="", init=False)
    _sizes: dict[Key, int] = field(default_factory=dict[Key, int], init=False)
    _dropped: dict[Key, int] = field(default_factory=dict[Key, int], init=False)
    _recorded: float = field(default=0.0, init=False)
    _lock: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        check_capacities(self.capacity, self.capacity_bytes)
        os.fspath(self.path)

    def open(self, label: str) -> Record | None:
        if self._lock is None:
            self._claim()
        try:
            return self._begin(label)
        except BaseException:
            self.close()
            raise

    def _begin(self, label: str) -> Record | None:
        self._label, self._recorded = label, monotonic()
        self._forget()
        self.peak_snapshots = self.peak_bytes = 0
        file = self._directory / _RECORD
        for whole in [file, *map(self._file, self._kept(".part"))]:
            whole.with_suffix(".part").unlink(missing_ok=True)
        if not file.exists():
            # So that another run is refused from now on, and a bad place right away.
            self.record(Record(None, None, None, label))
            return None
        value, kept = self._load(file)
        if kept.get("run") != label:
            raise StoreError(
                f"`{self._directory}` holds another run, `{kept.get('run')}`, and this "
                f"one is `{label}`. Use another directory, or remove that one."
            )
        length, left, cotangent = value
        return Record(length, left, cotangent, label)

    def steps(self) -> set[int]:
        return {step for kind, step in self._kept() if kind == "step"}

    def has(self, step: int, *, tape: bool = False) -> bool:
        """Whether there is a file of this state or tape."""
        return self._file(_key(step, tape)).exists()

    def keep_only(self, steps: set[int], tapes: Set[int] = frozenset()) -> None:
        found = self._kept()
        kept = {_key(k, False) for k in steps} | {_key(k, True) for k in tapes}
        for key in found - kept:
            self._file(key).unlink(missing_ok=True)
        self._forget()
        for key in found & kept:
            self._sizes[key] = read_label(self._file(key)).get("nbytes", 0)
        self.nbytes = sum(self._sizes.values())

    def put(
        self,
        step: int,
        slot: int,
        tier: str,
        capsule: C,
        nbytes: int,
        *,
        tape: bool = False,
    ) -> None:
        self._check_room(step, nbytes)
        value = self.pack(capsule) if self.pack and not tape else capsule
        key = _key(step, tape)
        data = encode(value, {**self._tag(key), "nbytes": nbytes})
        self._dropped.pop(key, None)
        while self._dropped and self._over(nbytes):
            self._remove_dropped()
        try:
            self._write(self._file(key), data)
        except StoreError:
            if not self._dropped:
                raise
            while self._dropped:
                self._remove_dropped()
            self._write(self._file(key), data)
        self.nbytes += nbytes - self._sizes.get(key, 0)
        self._sizes[key] = nbytes
        self.peak_snapshots = max(self.peak_snapshots, len(self._sizes))
        self.peak_bytes = max(self.peak_bytes, self.nbytes)

    def get(self, step: int, slot: int, tier: str, *, tape: bool = False) -> C:
        key = _key(step, tape)
        file = self._file(key)
        value, label = self._load(file)
        label.pop("nbytes", None)
        if label != self._tag(key):
            raise SnapshotError(
                f"`{file}` belongs to another run or step, {label}. "
                "Remove the file; its state is recomputed."
            )
        return self.unpack(value) if self.unpack and not tape else value

    def drop(self, step: int, slot: int, tier: str, *, tape: bool = False) -> None:
        key = _key(step, tape)
        self._dropped[key] = self._sizes.pop(key, 0)
        self.nbytes -= self._dropped[key]

    def record_due(self) -> bool:
        return len(self._dropped) >= 4 or monotonic() - self._recorded >= self.every

    def record(self, record: Record) -> None:
        value = record.length, record.left, record.cotangent
        data = encode(value, {"run": self._label})
        self._write(self._directory / _RECORD, data)
        while self._dropped:
            self._remove_dropped()
        self._recorded = monotonic()

    def clear(self) -> None:
        """Remove the run's files, so that the next call begins anew."""
        claimed = self._lock is None
        if claimed:
            self._claim()
        # The record goes first: snapshots without one are a run at its beginning.
        (self._directory / _RECORD).unlink(missing_ok=True)
        self.keep_only(set())
        if claimed:
            self.close()

    def close(self) -> None:
        if self._lock is not None:
            unlock(self._lock)
            self._lock = None

    @property
    def _directory(self) -> Path:
        return Path(self.path)

    def _file(self, key: Key) -> Path:
        return self._directory / f"{key[0]}-{key[1]:012d}.npz"

    def _kept(self, suffix: str = ".npz") -> set[Key]:
        """The states and tapes that have a file; one of another name is not ours."""
        found: set[Key] = set()
        for file in self._directory.glob(f"*-*{suffix}"):
            kind, _, step = file.stem.partition("-")
            if kind in ("step", "tape") and step.isdigit():
                key = kind, int(step)
                if self._file(key).stem == file.stem:
                    found.add(key)
        return found

    def _tag(self, key: Key) -> dict[str, object]:
        return {"run": self._label, key[0]: key[1]}

    def _claim(self) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._lock = lock(self._directory / "lock")
        except BlockingIOError as error:
            raise StoreError(
                f"`{self._directory}` is in use by another process. Wait for it to "
                "end, or use another directory."
            ) from error
        except NoLock as error:
            raise StoreError(
                f"`{self._directory}` cannot be used: {error}. Use a `MemoryStore`, or "
                "a POSIX system or Windows."
            ) from error
        except OSError as error:
            raise _failed(self._directory, "used", error) from error

    def _forget(self) -> None:
        """Know of no snapshot."""
        self._sizes.clear()
        self._dropped.clear()
        self.nbytes = 0

    def _remove_dropped(self) -> None:
        """Remove the file dropped first.

        Once the next record is written nobody needs it. Before, that is when its room
        is needed, a process that goes on from the last record will recompute it.
        """
        key = next(iter(self._dropped))
        self._file(key).unlink(missing_ok=True)
        del self._dropped[key]

    def _over(self, nbytes: int) -> bool:
        """Whether one more file beside all, dropped ones too, exceeds a capacity."""
        count = len(self._sizes) + len(self._dropped) + 1
        held = self.nbytes + sum(self._dropped.values()) + nbytes
        return (self.capacity is not None and count > self.capacity) or (
            self.capacity_bytes is not None
            and held > parse_bytes(self.capacity_bytes, "capacity_bytes")
        )

    def _check_room(self, step: int, nbytes: int) -> None:
        if self.capacity is not None and len(self._sizes) >= self.capacity:
            raise StoreError(
                f"step {step} would be snapshot {len(self._sizes) + 1} in "
                f"`{self._directory}`, which has `capacity={self.capacity}`. Use a "
                "plan with fewer snapshots."
            )
        if self.capacity_bytes is None:
            return
        most = parse_bytes(self.capacity_bytes, "capacity_bytes")
        if self.nbytes + nbytes > most:
            raise StoreError(
                f"step {step} needs {format_bytes(nbytes)} beside the "
                f"{format_bytes(self.nbytes)} in `{self._directory}`, and "
                f"`capacity_bytes` is {most}. Use a plan with fewer snapshots."
            )

    def _load(self, file: Path) -> tuple[Any, dict[str, Any]]:
        try:
            data = file.read_bytes()
        except FileNotFoundError as error:
            raise SnapshotError(
                f"`{file}` is not there. Its state is recomputed from an earlier one."
            ) from error
        except OSError as error:
            raise _failed(file, "read", error) from error
        return decode(data, str(file))

    def _write(self, file: Path, data: bytes) -> None:
        part = file.with_suffix(".part")
        try:
            with part.open("wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            part.replace(file)
            sync_directory(self._directory)
        except OSError as error:
            _remove(part)
            raise _failed(file, "written", error) from error


def _key(step: int, tape: bool) -> Key:
    return "tape" if tape else "step", step


def _remove(part: Path) -> None:
    try:
        part.unlink(missing_ok=True)
    except OSError:
        return  # The write has failed already; that is the error to report.


def _failed(file: Path, what: str, error: OSError) -> StoreError:
    return StoreError(
        f"`{file}` cannot be {what}: {error.strerror or error}. Free the space or the "
        "permission that is missing, and call again: the run goes on where it was."
    )

"""A store on disk, which a run that was killed finds again.

One file per snapshot, named for its step, written to a temporary file, flushed to the
device and renamed: whole or not at all. A lock that the operating system releases when
its process ends keeps a second process out.

The record of how far the run has come is kept twice: should the newer one be damaged,
the run goes on from the older one, and what was removed since is recomputed. A run that
is done leaves its record, so that a process that dies before it has used the result can
ask for it again. `clear`, or removing the directory, begins anew.
"""

import os
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from retape._bytes import format_bytes, parse_bytes
from retape._errors import SnapshotError, StoreError
from retape.storage._base import check_capacities
from retape.storage._codec import decode, encode, need_numpy, read_label
from retape.storage._durable import Record
from retape.storage._file_lock import Lock, NoLock, sync_directory

C = TypeVar("C")

_RECORD = "record.npz"
_RECORD_BEFORE = "record-before.npz"

Key: TypeAlias = tuple[str, int]
"""What a file holds, a state ("step") or a "tape", and the step at which it begins."""


@dataclass(slots=True)
class DiskStore(Generic[C]):
    """Keeps each snapshot in a file of its own.

    Capsules, cotangents and tapes are trees of NumPy arrays and plain Python values, or
    are turned into such by `pack`, `pack_cotangent` and `pack_tape`, and back by their
    inverses.

    Args:
        path: A directory of the run's own; made if it is not there.
        capacity: The most snapshots to hold, or `None`.
        capacity_bytes: The most bytes of arrays, or a text such as "2 GiB", or `None`;
            a file takes about 1 kB more.
        every: The record of how far the run has come is written this many seconds after
            the last one, and whenever four dropped snapshots wait for it.
        pack: From a capsule to a tree of arrays.
        unpack: The inverse.
        pack_cotangent: From a cotangent to a tree of arrays, for the record.
        unpack_cotangent: The inverse.
        pack_tape: From a tape to a tree of arrays, for plans that keep tapes.
        unpack_tape: The inverse.

    Raises:
        StoreError: If a capacity cannot be, or one of a pair of functions is lacking.

    Examples:
        >>> import tempfile
        >>> from retape.storage import DiskStore
        >>> with tempfile.TemporaryDirectory() as path:
        ...     store = DiskStore(path)
        ...     _ = store.open("an example")
        ...     store.put(7, 0, "disk", (1, 2.5), 16)
        ...     store.get(7, 0, "disk")
        (1, 2.5)

        A machine whose cotangents are sets:

        >>> from retape.storage import Record
        >>> with tempfile.TemporaryDirectory() as path:
        ...     def opened():
        ...         store = DiskStore(path, pack_cotangent=sorted, unpack_cotangent=set)
        ...         return store, store.open("an example")
        ...     store, _ = opened()
        ...     store.record(Record(9, 4, {3, 1}, "an example"))
        ...     store.close()
        ...     opened()[1].cotangent
        {1, 3}
    """

    path: str | os.PathLike[str]
    capacity: int | None = None
    capacity_bytes: int | str | None = None
    every: float = 2.0
    pack: Callable[[C], Any] | None = None
    unpack: Callable[[Any], C] | None = None
    pack_cotangent: Callable[[Any], Any] | None = None
    unpack_cotangent: Callable[[Any], Any] | None = None
    pack_tape: Callable[[Any], Any] | None = None
    unpack_tape: Callable[[Any], Any] | None = None
    peak_snapshots: int = field(default=0, init=False)
    peak_bytes: int = field(default=0, init=False)
    nbytes: int = field(default=0, init=False)
    _label: str = field(default="", init=False)
    _sizes: dict[Key, int] = field(default_factory=dict[Key, int], init=False)
    _dropped: dict[Key, int] = field(default_factory=dict[Key, int], init=False)
    _recorded: float = field(default=0.0, init=False)
    _lock: Lock | None = field(default=None, init=False)

    gives_copies: ClassVar[bool] = True
    """What `get` returns is nobody else's: the driver need not copy it."""

    def __post_init__(self) -> None:
        need_numpy("a `DiskStore`")
        self.capacity = check_capacities(self.capacity, self.capacity_bytes)
        os.fspath(self.path)
        for name in ("pack", "pack_cotangent", "pack_tape"):
            pair = getattr(self, name), getattr(self, f"un{name}")
            if (pair[0] is None) != (pair[1] is None):
                raise StoreError(
                    f"`{name}={pair[0]!r}` and `un{name}={pair[1]!r}`: what is packed "
                    "has to be unpacked. Pass both functions, or none."
                )

    def open(self, label: str) -> Record | None:
        if self._lock is not None and self._lock.is_ours():
            raise StoreError(
                f"`{self._directory}` is in use by another run of this store. Give "
                "each run a directory of its own."
            )
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
        for whole in map(self._file, self._kept(".part")):
            whole.with_suffix(".part").unlink(missing_ok=True)
        for name in (_RECORD, _RECORD_BEFORE):
            (self._directory / name).with_suffix(".part").unlink(missing_ok=True)
        found = self._read_record()
        if found is None:
            # So that another run is refused from now on, and a bad place right away.
            self.record(Record(None, None, None, label))
            return None
        (length, left, cotangent), kept = found
        if kept.get("run") != label:
            raise _another_run(self._directory, str(kept.get("run")), label)
        if self.unpack_cotangent and cotangent is not None:
            cotangent = self.unpack_cotangent(cotangent)
        return Record(length, left, cotangent, label)

    def _read_record(self) -> tuple[Any, dict[str, Any]] | None:
        """The last record, or the one before it if the last one is damaged."""
        last, before = self._directory / _RECORD, self._directory / _RECORD_BEFORE
        if not before.exists():
            return self._load(last) if last.exists() else None
        if last.exists():
            try:
                return self._load(last)
            except SnapshotError:
                found = self._load(before)
                # Or it would take the place of the good one.
                last.unlink()
                return found
        return self._load(before)

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
        pack = self.pack_tape if tape else self.pack
        value = pack(capsule) if pack else capsule
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
        unpack = self.unpack_tape if tape else self.unpack
        return unpack(value) if unpack else value

    def drop(self, step: int, slot: int, tier: str, *, tape: bool = False) -> None:
        key = _key(step, tape)
        self._dropped[key] = self._sizes.pop(key, 0)
        self.nbytes -= self._dropped[key]

    def record_due(self) -> bool:
        return len(self._dropped) >= 4 or monotonic() - self._recorded >= self.every

    def record(self, record: Record) -> None:
        cotangent = record.cotangent
        if self.pack_cotangent and cotangent is not None:
            cotangent = self.pack_cotangent(cotangent)
        value = record.length, record.left, cotangent
        data = encode(value, {"run": self._label})
        last = self._directory / _RECORD
        try:
            if last.exists():
                last.replace(self._directory / _RECORD_BEFORE)
        except OSError as error:
            raise _failed(last, "written", error) from error
        self._write(last, data)
        while self._dropped:
            self._remove_dropped()
        self._recorded = monotonic()

    def clear(self) -> None:
        """Remove the run's files, so that the next call begins anew."""
        claimed = self._lock is None
        if claimed:
            self._claim()
        # The record goes first: snapshots without one are a run at its beginning.
        for name in (_RECORD_BEFORE, _RECORD):
            (self._directory / name).unlink(missing_ok=True)
        self.keep_only(set())
        if claimed:
            self.close()

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _check_owner(self) -> None:
        """Keep a forked child from using what its parent has claimed."""
        if self._lock is not None and not self._lock.is_ours():
            raise StoreError(
                f"`{self._directory}` is in use by the process that this one was "
                "forked from. Give each process a directory of its own."
            )

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
            self._lock = Lock(self._directory / "lock")
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
        self._check_owner()
        if file.is_symlink():
            raise SnapshotError(
                f"`{file}` is a symbolic link, and this library makes none. Remove "
                "it; its state is recomputed."
            )
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
        self._check_owner()
        part = file.with_suffix(".part")
        try:
            # Made anew: a link of this name would lead to a file of somebody else's.
            part.unlink(missing_ok=True)
            with part.open("xb") as out:
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


def _another_run(directory: Path, kept: str, asked: str) -> StoreError:
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
    return StoreError(
        f"`{directory}` holds {what}. Use another directory, or remove that one."
    )


def _failed(file: Path, what: str, error: OSError) -> StoreError:
    return StoreError(
        f"`{file}` cannot be {what}: {error.strerror or error}. Free the space or the "
        "permission that is missing, and call again: the run goes on where it was."
    )

"""A thread that obeys calls of a store in their order, and reads ahead.

Only reads overtake writes, of snapshots that no call before them changes. What waits is
bounded in bytes. After an error nothing is done any more until `end`.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from retape._bytes import parse_bytes
from retape._errors import SnapshotError, StoreError

Key: TypeAlias = tuple[int, bool]
"""The step at which a snapshot begins, and whether it is a tape."""


class Job(NamedTuple):
    """A call of the store.

    Attributes:
        what: What went wrong if it fails, for the error.
        call: The call.
        nbytes: The bytes that it keeps alive while it waits.
        key: The snapshot that it changes, if it changes one.
        capsule: What it writes, if it writes something.
    """

    what: str
    call: Callable[[], None]
    nbytes: int = 0
    key: Key | None = None
    capsule: Any = None


@dataclass(slots=True)
class _Read:
    """A snapshot that is being read, or has been."""

    call: Callable[[], Any] | None
    done: bool = False
    value: Any = None
    error: BaseException | None = None


@dataclass(slots=True, eq=False)
class Background:
    """The thread, and what waits for it.

    Attributes:
        buffer: The most bytes that wait; `None` for twice the largest so far.
        peak: The most bytes that waited at once.
        error: What went wrong, until it is raised.
    """

    buffer: int | str | None = None
    peak: int = 0
    error: StoreError | None = None
    _turn: threading.Condition = field(default_factory=threading.Condition)
    _jobs: deque[Job] = field(default_factory=deque[Job])
    _reads: dict[Key, _Read] = field(default_factory=dict[Key, _Read])
    _waiting: dict[Key, Any] = field(default_factory=dict[Key, Any])
    _held: int = 0
    _largest: int = 0
    _busy: bool = False
    _ending: bool = False
    _thread: threading.Thread | None = None
    _process: int = 0

    def check(self) -> None:
        """Refuse a forked child, which has no thread, and report what went wrong."""
        if self._process and self._process != os.getpid():
            raise StoreError(
                "a store that works in the background is in use by the process that "
                "this one was forked from. Give each process a store of its own."
            )
        self.report()

    def report(self) -> None:
        """Raise what went wrong, once."""
        error, self.error = self.error, None
        if error is not None:
            raise error

    def submit(self, job: Job) -> None:
        """Let the thread do a job, once there is room for what it keeps alive."""
        self.check()
        with self._turn:
            if job.key is not None:  # A record is larger than a snapshot.
                self._largest = max(self._largest, job.nbytes)
            self._turn.wait_for(lambda: self._has_room(job.nbytes))
            if self.error is None:
                self._held += job.nbytes
                self.peak = max(self.peak, self._held)
                self._jobs.append(job)
                if job.key is not None:
                    self._reads.pop(job.key, None)
                    if job.capsule is not None:
                        self._waiting[job.key] = job.capsule
                self._wake()
        self.report()

    def begin(self, key: Key, call: Callable[[], Any]) -> None:
        """Begin to read a snapshot, unless that is done or it still waits."""
        self.check()
        with self._turn:
            if key in self._reads:
                return
            if key in self._waiting:
                self._reads[key] = _Read(None, True, self._waiting[key])
                return
            self._reads[key] = _Read(call)
            self._wake()

    def take(self, key: Key) -> Any:
        """Wait for a read, and give its value."""
        with self._turn:
            read = self._reads[key]
            # What is being written must not be given away: it could be changed.
            self._turn.wait_for(
                lambda: (
                    (read.done and key not in self._waiting) or self.error is not None
                )
            )
            self._reads.pop(key, None)
        if read.error is not None:
            raise read.error
        self.report()
        return read.value

    def flush(self) -> None:
        """Wait until all is done; what was read ahead stays at hand."""
        self.check()
        with self._turn:
            self._turn.wait_for(self._is_idle)
        self.report()

    def forget_reads(self) -> None:
        """Give up what was read ahead."""
        with self._turn:
            self._reads.clear()

    def end(self) -> None:
        """Let the thread do what is left, and end it."""
        if self._thread is not None and self._process == os.getpid():
            with self._turn:
                self._ending = True
                self._turn.notify_all()
            self._thread.join()
        self._thread, self._process = None, 0
        self._jobs.clear()
        self._reads.clear()
        self._waiting.clear()
        self._held = 0

    def _has_room(self, nbytes: int) -> bool:
        if self.error is not None or self._held == 0:
            return True
        most = 2 * self._largest if self.buffer is None else parse_bytes(self.buffer)
        return self._held + nbytes <= most

    def _is_idle(self) -> bool:
        reading = any(not read.done for read in self._reads.values())
        return not (self._jobs or self._busy or reading) or self.error is not None

    def _wake(self) -> None:
        """See that there is a thread, and wake it."""
        if self._thread is None:
            self._process, self._ending = os.getpid(), False
            self._thread = threading.Thread(
                target=self._work, name="retape.AsyncStore", daemon=True
            )
            self._thread.start()
        self._turn.notify_all()

    def _work(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._next() is not None or self._ending)
                task = self._next()
                if task is None:
                    return
                if isinstance(task, Job):
                    self._jobs.popleft()
                self._busy = True
            if isinstance(task, Job):
                self._do(task)
            else:
                self._read(task)

    def _next(self) -> Job | _Read | None:
        """The next job: a read if there is one, since the program may wait for it."""
        for read in self._reads.values():
            if not read.done:
                return read
        return self._jobs[0] if self._jobs else None

    def _do(self, job: Job) -> None:
        error: BaseException | None = None
        try:
            job.call()
        except BaseException as raised:
            error = raised
        with self._turn:
            self._busy = False
            self._held -= job.nbytes
            if job.capsule is not None and job.key is not None:
                if not any(o.key == job.key and o.nbytes for o in self._jobs):
                    self._waiting.pop(job.key, None)
            if error is not None:
                self._stop(job, error)
            self._turn.notify_all()

    def _stop(self, job: Job, error: BaseException) -> None:
        """Do nothing more: what comes after a gap would not be a run's."""
        self._jobs.clear()
        self._waiting.clear()
        self._held = 0
        kind = SnapshotError if isinstance(error, SnapshotError) else StoreError
        self.error = kind(f"in the background, {job.what}: {error}")
        self.error.__cause__ = error

    def _read(self, read: _Read) -> None:
        try:
            read.value = read.call() if read.call else None
        except BaseException as error:
            read.error = error
        with self._turn:
            read.done, self._busy = True, False
            self._turn.notify_all()

"""A thread that obeys calls of a store in their order, and reads ahead.

Only reads overtake writes, of snapshots that no call before them changes. What waits is
bounded in bytes. After an error nothing that waits is done any more.
"""

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from retape._bytes import parse_bytes
from retape._errors import SnapshotError, StoreError
from retape.storage._base import Key


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
    _jobs: deque[tuple[Job, Future[None]]] = field(
        default_factory=deque[tuple[Job, Future[None]]]
    )
    _reads: dict[Key, Future[Any] | Job] = field(
        default_factory=dict[Key, Future[Any] | Job]
    )
    _ahead: deque[tuple[Future[Any], Callable[[], Any]]] = field(
        default_factory=deque[tuple[Future[Any], Callable[[], Any]]]
    )
    _held: int = 0
    _largest: int = 0
    _failed: bool = False
    _pool: ThreadPoolExecutor | None = None
    _process: int = 0

    def check(self) -> None:
        """Refuse a forked child, which has no thread, and report what went wrong."""
        if self._process and self._process != os.getpid():
            raise StoreError(
                "a store that works in the background is in use by the process that "
                "this one was forked from. Give each process a store of its own."
            )
        while self._jobs and self._jobs[0][1].done():
            self._wait_for_first()
        self.report()

    def report(self) -> None:
        """Raise what went wrong, once."""
        error, self.error = self.error, None
        if error is not None:
            raise error

    def submit(self, job: Job) -> None:
        """Let the thread do a job, once there is room for what it keeps alive."""
        self.check()
        if job.key is not None:  # A record is larger than a snapshot.
            self._largest = max(self._largest, job.nbytes)
            self._reads.pop(job.key, None)
        while self._held and self._held + job.nbytes > self._most():
            self._wait_for_first()
        self.report()
        self._held += job.nbytes
        self.peak = max(self.peak, self._held)
        self._jobs.append((job, self._threads().submit(self._do, job)))

    def begin(self, key: Key, call: Callable[[], Any]) -> None:
        """Begin to read a snapshot, unless that is done or it still waits."""
        self.check()
        if key not in self._reads:
            waits = [
                job
                for job, _ in self._jobs
                if job.key == key and job.capsule is not None
            ]
            if waits:
                self._reads[key] = waits[-1]
                return
            read = self._reads[key] = Future[Any]()
            self._ahead.append((read, call))
            self._threads().submit(self._read)

    def take(self, key: Key) -> Any:
        """Wait for a read, and give its value."""
        read = self._reads[key]
        if isinstance(read, Job):
            # What is being written must not be given away: it could be changed.
            while any(job is read for job, _ in self._jobs):
                self._wait_for_first()
            value = read.capsule
        else:
            wait([read])
            self._reads.pop(key, None)
            value = read.result()
        self._reads.pop(key, None)
        self.report()
        return value

    def flush(self) -> None:
        """Wait until all is done; what was read ahead stays at hand."""
        self.check()
        while self._jobs:
            self._wait_for_first()
        wait([read for read in self._reads.values() if isinstance(read, Future)])
        self.report()

    def forget_reads(self) -> None:
        """Give up what was read ahead."""
        self._reads.clear()

    def end(self) -> None:
        """Let the thread do what is left, and end it."""
        if self._pool is not None and self._process == os.getpid():
            while self._jobs:
                self._wait_for_first()
            self._pool.shutdown()
        self._pool, self._process, self._held = None, 0, 0
        self._jobs.clear()
        self._reads.clear()

    def _most(self) -> int:
        return 2 * self._largest if self.buffer is None else parse_bytes(self.buffer)

    def _threads(self) -> ThreadPoolExecutor:
        """The one thread, which is begun when it is first needed."""
        if self._pool is None:
            self._process = os.getpid()
            self._pool = ThreadPoolExecutor(1, "retape.AsyncStore")
        return self._pool

    def _read(self) -> None:
        while self._ahead:
            read, call = self._ahead.popleft()
            try:
                read.set_result(call())
            except BaseException as error:
                read.set_exception(error)

    def _do(self, job: Job) -> None:
        self._read()  # The program may wait for it.
        if self._failed:
            return  # What comes after a gap would not be a run's.
        try:
            job.call()
        except BaseException:
            self._failed = True
            raise

    def _wait_for_first(self) -> None:
        """Wait for the job that was submitted first; an error ends all others."""
        job, future = self._jobs[0]
        error = future.exception()
        if error is None:
            self._jobs.popleft()
            self._held -= job.nbytes
            return
        wait([each for _, each in self._jobs])
        self._jobs.clear()
        self._held, self._failed = 0, False
        kind = SnapshotError if isinstance(error, SnapshotError) else StoreError
        self.error = kind(f"in the background, {job.what}: {error}")
        self.error.__cause__ = error

"""When a run is to end before its time: at a signal, at a time limit, when asked to.

A job on a shared machine is told when it must end. A run that heeds this ends at a safe
point (`_early_end`), and `RunInterrupted` is raised.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from datetime import timedelta
from time import monotonic
from types import FrameType, TracebackType
from typing import Any

from retape._arguments import number_of
from retape._errors import PlanError, RunInterrupted
from retape.storage import SnapshotStore
from retape.storage._base import is_durable


class interruptible:  # noqa: N801, a verb in a `with` statement
    """End the runs in a `with` block at a safe point, at a signal or a time limit.

    It is for runs that the host steers, with a store that outlives the process:
    `retape.adjoint(store=retape.DiskStore(...))`, `retape.jax.grad(..., store=...)`. A
    run that ends early raises `retape.RunInterrupted`; the same call goes on from
    there, with the same bits. The same signal again ends the process at once.

    Args:
        time_limit: Seconds, or a `timedelta`, from here on. A run ends before it, by
            what its steps, stages and writes have taken so far.
        signals: Names or numbers of signals to heed. Handlers are set in the block and
            restored after it, which only the main thread may do: elsewhere pass `()`.

    Raises:
        PlanError: If the limit or a signal cannot be, or this is not the main thread.

    Examples:
        >>> import tempfile
        >>> import retape
        >>> def call(store):
        ...     return retape.adjoint(
        ...         retape.Program(
        ...             step=lambda x, k: x * x, reverse_step=lambda x, k, g: 2 * x * g
        ...         ),
        ...         1.5,
        ...         seed=lambda x: 1.0,
        ...         steps=3,
        ...         store=store,
        ...     )
        >>> place = tempfile.mkdtemp()
        >>> try:
        ...     with retape.interruptible(time_limit=3600) as limit:
        ...         limit.request("an example")
        ...         call(retape.DiskStore(place))
        ... except retape.RunInterrupted as stopped:
        ...     print(stopped.reason, stopped.exit_code)
        an example 75
        >>> call(retape.DiskStore(place)).cotangent
        136.6875
    """

    def __init__(
        self,
        time_limit: float | timedelta | None = None,
        signals: Sequence[str | int] = ("SIGTERM",),
    ) -> None:
        self.time_limit = _seconds(time_limit)
        self.signals = _signals(signals)
        self.reason: str | None = None
        """Why to stop, once that is known."""
        self._clock: Callable[[], float] = monotonic
        self._deadline: float | None = None
        self._came: int | None = None
        self._heeded = False
        self._before: dict[int, Any] = {}
        self._token: Token[interruptible | None] | None = None

    def request(self, reason: str) -> None:
        """Ask the run to end at its next safe point; from any thread."""
        self.reason = reason

    def due(self, seconds: float) -> str | None:
        """Why to stop now, rather than after an action that takes so long."""
        if self.reason is None and self._deadline is not None:
            if self._clock() + seconds >= self._deadline:
                self.reason = f"the time limit of {self.time_limit:g} s"
        return self.reason

    def __enter__(self) -> interruptible:
        if self._token is not None:
            raise PlanError(
                "this `retape.interruptible(...)` is in use. Make one for each block."
            )
        if self.signals and threading.current_thread() is not threading.main_thread():
            raise PlanError(
                f"`signals={[s.name for s in self.signals]}`: only the main thread can "
                "heed signals, and this is another. Pass `signals=()` here, and let "
                "the main thread call `request` of this object."
            )
        if self.time_limit is not None:
            self._deadline = self._clock() + self.time_limit
        self._token = _ACTIVE.set(self)
        for number in self.signals:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before.clear()
        if self._token is not None:
            _ACTIVE.reset(self._token)
            self._token = None
        if self._came is not None and not self._heeded:
            # No run was there to heed it: it does what it would have done before.
            signal.raise_signal(self._came)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._came == number:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self._came, self.reason = number, signal.Signals(number).name


_ACTIVE: ContextVar[interruptible | None] = ContextVar("retape.interruptible")


@contextmanager
def heeded(store: SnapshotStore[Any]) -> Generator[interruptible | None]:
    """The `interruptible` that a run is called in, if there is one, for it to heed.

    Raises:
        PlanError: If nothing of the run would be left.
    """
    limit = _ACTIVE.get(None)
    if limit is None:
        yield None
        return
    if not is_durable(store):
        raise PlanError(
            f"`store={store!r}` does not go with `retape.interruptible`: if the "
            "run is ended early, all of it is lost. Pass `store=retape.DiskStore(...)` "
            "or another store that outlives the process, or call it outside the block."
        )
    if store.is_shared:
        raise PlanError(
            f"`retape.interruptible` does not go with a `{type(store).__name__}` "
            "of several processes: a signal reaches them at different steps, and each "
            "would stop at its own. Call it outside the block; a job that is ended "
            "goes on from the last record, which `every=` of the store writes."
        )
    with unheeded():
        try:
            yield limit
        except RunInterrupted:
            limit._heeded = True  # pyright: ignore[reportPrivateUsage]
            raise


@contextmanager
def unheeded() -> Generator[None]:
    """Let no run heed an `interruptible`: what a step calls in turn is a part of it."""
    token = _ACTIVE.set(None)
    try:
        yield
    finally:
        _ACTIVE.reset(token)


def _seconds(given: object) -> float | None:
    if given is None:
        return None
    if isinstance(given, timedelta):
        return given.total_seconds()
    seconds = number_of(given)
    if not seconds >= 0:
        raise PlanError(
            f"`time_limit={given!r}` is not valid: pass a number of seconds, or a "
            "`datetime.timedelta`."
        )
    return seconds


_NEVER_HEEDED = ("SIGKILL", "SIGSTOP")


def _signals(given: Sequence[str | int]) -> tuple[signal.Signals, ...]:
    names = (given,) if isinstance(given, str | int) else given
    found: list[signal.Signals] = []
    for name in names:
        try:
            found.append(
                signal.Signals[name] if isinstance(name, str) else signal.Signals(name)
            )
        except (KeyError, ValueError) as error:
            raise PlanError(
                f"`signals={given!r}`: this system has no signal {name!r}. Pass names "
                'such as "SIGTERM" or "SIGUSR1".'
            ) from error
        if found[-1].name in _NEVER_HEEDED:
            raise PlanError(
                f"`signals={given!r}`: {found[-1].name} ends or stops a process "
                'unasked. Pass names such as "SIGTERM" or "SIGUSR1"; what such a '
                "signal ends goes on from the last record by the same call."
            )
    return tuple(found)

"""Progress of a search that compiles programs to learn what they take.

`within`, `policies.within` and the planner ask the compiler, which may take seconds for
each program. A search runs inside a call of the user's (`jax.grad`, `jax.jit`), which
has no argument for it; so whoever wants to be told says so around the call.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from time import monotonic
from typing import NamedTuple, TextIO

_PATIENCE = 1.0
"""Seconds of compiling before a line is written."""
_EVERY = 0.5
"""Seconds between two lines."""


class SearchProgress(NamedTuple):
    """What a search has done so far.

    Attributes:
        compiled: Programs that it compiled.
        seconds: Time since its first program was begun.
        bytes: Temporaries of the last one, as the compiler reports them; `None` before
            the first, and where the compiler does not tell.
    """

    compiled: int
    seconds: float
    bytes: int | None


class _Watched:
    """The programs of all searches inside one `search_progress`."""

    def __init__(self, show: Callable[[SearchProgress], None]) -> None:
        self.show = show
        self.compiled = 0
        self.began: float | None = None
        self.last: int | None = None

    def tell(self) -> None:
        began = monotonic() if self.began is None else self.began
        self.began = began
        self.show(SearchProgress(self.compiled, monotonic() - began, self.last))


_watched: ContextVar[_Watched | None] = ContextVar("watched", default=None)


@contextmanager
def search_progress(
    show: Callable[[SearchProgress], None] | None = None,
) -> Iterator[None]:
    """Tell of the programs that searches for a budget compile inside.

    Args:
        show: Is called before the first program and after each, with a
            `SearchProgress`. By default a line on standard error says how many there
            were, once compiling has taken a second.

    Examples:
        >>> import jax, jax.numpy as jnp, retape.jax
        >>> def loss(w):
        ...     for _ in range(8):
        ...         w = jnp.tanh(jnp.sin(w @ w))
        ...     return jnp.sum(w)
        >>> policy = retape.jax.policies.within("100 kB")
        >>> told = []
        >>> with retape.jax.search_progress(told.append):
        ...     _ = jax.grad(retape.jax.checkpoint(loss, policy=policy))(jnp.eye(64))
        >>> 1 <= told[-1].compiled <= 3
        True
    """
    if show is not None:
        with _watching(_Watched(show)):
            yield
        return
    line = _Line(sys.stderr)
    with _watching(_Watched(line.show)):
        try:
            yield
        finally:
            line.end()


@contextmanager
def _watching(watched: _Watched) -> Iterator[None]:
    token = _watched.set(watched)
    try:
        yield
    finally:
        _watched.reset(token)


def candidate_begun() -> None:
    """A program is about to be compiled for what it takes."""
    watched = _watched.get()
    if watched is not None and not watched.compiled:
        watched.tell()


def candidate_compiled(size: int | None) -> None:
    """It was compiled, and takes so many bytes of temporaries."""
    watched = _watched.get()
    if watched is not None:
        watched.compiled, watched.last = watched.compiled + 1, size
        watched.tell()


class _Line:
    """A line of a terminal or a log, renewed while a program is compiled."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.began: float | None = None
        self.compiled = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.wrote = False

    def show(self, progress: SearchProgress) -> None:
        self.compiled = progress.compiled
        if self.began is None:
            self.began = monotonic()
            self.thread.start()

    def run(self) -> None:
        pause = _PATIENCE
        while not self.ended.wait(pause):
            self.write()
            pause = _EVERY

    def write(self) -> None:
        assert self.began is not None
        spent = monotonic() - self.began
        self._put(f"\rretape: search, {self.compiled} compiled, {spent:.0f} s")
        self.wrote = True

    def end(self) -> None:
        self.ended.set()
        if self.began is not None:
            # What it is about to write comes before the last line, and not after us.
            self.thread.join()
        if self.wrote:
            self.write()
            self._put("\n")

    def _put(self, text: str) -> None:
        # A stream that was closed has no reader, and the search goes on.
        with suppress(OSError, ValueError):
            self.out.write(text)
            self.out.flush()

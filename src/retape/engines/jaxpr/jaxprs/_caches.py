"""Bounded caches of what was worked out about programs; `clear_caches` empties all.

What a program is traced to depends on JAX's settings besides: precision, the form of
random numbers, the width of integers, a mesh. So each cache asks JAX for all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import jax

from retape.engines.jaxpr.jaxprs._jax_internals import trace_context

P = ParamSpec("P")
T = TypeVar("T")

_FORGET: list[Callable[[], object]] = []


class KnownAnswers(Generic[P, T]):
    """A function whose answers are remembered under each of JAX's settings."""

    def __init__(self, fun: Callable[P, T], most: int) -> None:
        functools.update_wrapper(self, fun)
        self.made_anew = fun

        @functools.lru_cache(maxsize=most)
        def known(settings: Any, *args: P.args, **kwargs: P.kwargs) -> T:
            del settings
            return fun(*args, **kwargs)

        self._known = known
        self.cache_info, self.cache_clear = known.cache_info, known.cache_clear

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._known(trace_context(), *args, **kwargs)


def cached(most: int) -> Callable[[Callable[P, T]], KnownAnswers[P, T]]:
    """`functools.lru_cache(most)` that knows JAX's settings.

    `clear_caches` empties it.
    """

    def wrap(fun: Callable[P, T]) -> KnownAnswers[P, T]:
        found = KnownAnswers(fun, most)
        forgotten(found.cache_clear)
        return found

    return wrap


def forgotten(clear: Callable[[], object]) -> None:
    """Let `clear_caches` call this, too."""
    _FORGET.append(clear)


def clear_caches() -> None:
    """Forget all programs that were worked on or compiled; JAX's caches, too.

    Programs are remembered, the last few hundred of them, so that a function that is
    differentiated again is not compiled again. A function that
    `retape.jax.grad` returned keeps what was compiled for it as long as it lives.

    Examples:
        >>> import retape.jax
        >>> retape.jax.clear_caches()
    """
    forget()
    jax.clear_caches()


def forget() -> None:
    """Forget what this library remembers."""
    for each in _FORGET:
        each()

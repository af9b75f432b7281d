"""Bounded caches of what was worked out about programs; `clear_caches` empties all."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

P = ParamSpec("P")
T = TypeVar("T")

_FORGET: list[Callable[[], object]] = []


def cached(
    most: int,
) -> Callable[[Callable[P, T]], functools._lru_cache_wrapper[T]]:
    """`functools.lru_cache(most)`, emptied by `clear_caches`."""

    def wrap(fun: Callable[P, T]) -> functools._lru_cache_wrapper[T]:
        found = functools.lru_cache(maxsize=most)(fun)
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

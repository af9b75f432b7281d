"""Choices between numbers, each a single operation.

`jnp.where`, `maximum` and `minimum` are functions compiled apart: each is a call that
is traced, lowered and put in line again. A sweep has seventy of them, on single
integers, which took a sixth of the time that Python needs for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax import lax


@contextmanager
def own_types() -> Iterator[None]:
    """The settings that our own code is written for, whatever the user's are.

    Counts have 64 bits, and a truth value may be added to one.
    """
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        yield


def where(truth: Any, yes: Any, no: Any) -> Any:
    """`yes` where `truth`, else `no`; a Python number takes the type of the other one.

    Examples:
        >>> import jax.numpy as jnp
        >>> where(jnp.array([True, False]), jnp.int32(3), -1).tolist()
        [3, -1]
    """
    yes, no = same_types(yes, no)
    shape = np.broadcast_shapes(np.shape(truth), yes.shape, no.shape)
    return lax.select_n(
        truth, _broadcast_number(no, shape), _broadcast_number(yes, shape)
    )


def chosen(truth: Any, new: Any, old: Any) -> Any:
    """`new` if `truth`, else `old`; always `new` where there is no truth.

    In a sweep for an accelerator every block is run and what it made is chosen or not;
    in one for the CPU a loop around the block decides, and `truth` is `None`.
    """
    return new if truth is None else lax.select(truth, new, old)


def at_least(number: Any, least: Any) -> Any:
    """The number, or `least` if that is larger.

    Examples:
        >>> import jax.numpy as jnp
        >>> at_least(jnp.int32(-3), 0).item()
        0
    """
    return lax.max(*_broadcast(number, least))


def at_most(number: Any, most: Any) -> Any:
    """The number, or `most` if that is smaller."""
    return lax.min(*_broadcast(number, most))


def _broadcast(a: Any, b: Any) -> tuple[Any, Any]:
    a, b = same_types(a, b)
    shape = np.broadcast_shapes(a.shape, b.shape)
    return _broadcast_number(a, shape), _broadcast_number(b, shape)


def same_types(a: Any, b: Any) -> tuple[Any, Any]:
    """Both numbers, a Python number of the type of the other one."""
    (kind, *_) = (v.dtype for v in (a, b) if hasattr(v, "dtype"))
    a, b = (v if hasattr(v, "dtype") else kind.type(v) for v in (a, b))
    assert a.dtype == b.dtype, f"{a.dtype} and {b.dtype}"
    return a, b


def _broadcast_number(value: Any, shape: tuple[int, ...]) -> Any:
    if value.shape == shape:
        return value
    behind = range(len(shape) - len(value.shape), len(shape))
    return lax.broadcast_in_dim(value, shape, tuple(behind))

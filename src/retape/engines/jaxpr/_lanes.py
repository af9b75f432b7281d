"""Loops under `vmap`, whose lanes end each at its own time.

Such a loop runs as long as any of its lanes goes on, and lets the others stand:

    v = select(going, body(v), v)

The derivative of what stands is that of `v`, but the body is differentiated for it,
too, and its cotangent there is zero times the derivative of a step beyond the end:
NaN if that is infinite. Two ways keep it out, both known as the double `where`:

    u = select(going, v, stop_gradient(v))      what comes back to `v` is dropped
    u = select(going, v, w)                     a step beyond the end is not taken

The first costs nothing, and does if nothing but the lanes themselves has a derivative.
What is the same for all lanes gets the sum of theirs, in which NaN can no longer be
told from the rest. So there the second is taken: `w` is what the lane's last step
started from, once more as many registers. A lane that never goes on takes another's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax


def where(lanes: Any, new: Any, old: Any) -> list[Any]:
    """New values in the lanes that go on."""
    wide = lanes.reshape(lanes.shape + (1,) * (new.ndim - lanes.ndim))
    return [jnp.where(wide, new, old)]


def any_of(lanes: Any) -> list[Any]:
    """Whether any lane goes on."""
    return [jnp.any(lanes)]


def through_gate(lanes: Any, value: Any) -> list[Any]:
    """A value from which no derivative comes back in lanes that stand."""
    return where(lanes, value, lax.stop_gradient(value))


def harmless(lanes: Any, value: Any, before: Any) -> list[Any]:
    """What a step starts from, and the same without a derivative, for later."""
    (chosen,) = where(lanes, value, before)
    return [chosen, lax.stop_gradient(chosen)]


def of_one_that_goes(lanes: Any, value: Any) -> list[Any]:
    """In lanes that never go on, what the first of those that do starts from."""
    rows = value.reshape(-1, *value.shape[lanes.ndim :])
    one = jnp.broadcast_to(rows[jnp.argmax(lanes.reshape(-1))], value.shape)
    (chosen,) = where(lanes, value, one)
    return [lax.stop_gradient(chosen)]


def parts(values: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Pairs as a list of firsts and one of seconds."""
    return [list(column) for column in zip(*values, strict=True)]

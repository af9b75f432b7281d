"""The axis of a batch, brought to the front of what `vmap` hands to a rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp


def front(value: Any, axis: int | None, size: int) -> Any:
    """A value with the axis in front; what has none is the same for all lanes."""
    if axis is None:
        return jnp.broadcast_to(value, (size, *jnp.shape(value)))
    return jnp.moveaxis(value, axis, 0)


def in_front(values: Sequence[Any], dims: Sequence[int | None]) -> list[Any]:
    """Values with their axis in front; at least one of them has it."""
    pairs = list(zip(values, dims, strict=True))
    size = next(v.shape[d] for v, d in pairs if d is not None)
    return [front(v, d, size) for v, d in pairs]

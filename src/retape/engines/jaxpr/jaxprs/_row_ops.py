"""Rows of arrays, at indices that are never negative.

JAX's own indexing first wraps negative indices round: three operations a time, in the
innermost loops and in what has to be compiled. Its `dynamic_index_in_dim` is a function
compiled apart: a call that is traced, lowered and put in line again.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from retape.engines.jaxpr.jaxprs._avals import spread, varying, zeros_as
from retape.engines.jaxpr.jaxprs._scalar_ops import chosen


def row(array: Any, index: Any) -> Any:
    """`array[index]`."""
    return lax.squeeze(rows(array, index, 1), (0,))


def rows(array: Any, index: Any, count: int) -> Any:
    """`array[index : index + count]`."""
    return lax.dynamic_slice_in_dim(array, index, count, allow_negative_indices=False)


def put(array: Any, value: Any, index: Any) -> Any:
    """`array` with `array[index] = value`."""
    return put_rows(array, lax.expand_dims(value, (0,)), index)


def put_if(ok: Any, array: Any, value: Any, index: Any) -> Any:
    """The same if `ok`, or if that is `None`: where it is false no row changes.

    An index beyond the end is the last one, in what is read and in what is written: so
    nothing changes there either.
    """
    if ok is not None:
        value = chosen(ok, value, row(array, index))
    return put(array, value, index)


def put_inside(ok: Any, array: Any, value: Any, index: Any) -> Any:
    """`put_if`, but an index from the array's length on is that of no row."""
    inside = lax.lt(index, np.int32(array.shape[0]))
    inside = inside if ok is None else lax.bitwise_and(inside, ok)
    old = row(array, index)
    axes = varying(jax.typeof(old))
    value, inside = spread(value, axes), spread(inside, axes)
    return put(array, lax.select(inside, value, old), index)


def chosen_row(ok: Any, index: Any) -> Any:
    """An index if `ok`, or if that is `None`, else that of no row of any array."""
    return chosen(ok, index, np.int32(2**31 - 1))


def take_row(array: Any, index: Any) -> tuple[Any, Any]:
    """A row, and the array with zeros there; without a row zeros, and all as it is."""
    old = row(array, index)
    inside = lax.lt(index, np.int32(array.shape[0]))
    inside = spread(inside, varying(jax.typeof(old)))
    zeros = zeros_as(old)
    left = put(array, lax.select(inside, zeros, old), index)
    return lax.select(inside, old, zeros), left


def put_rows(array: Any, values: Any, index: Any) -> Any:
    """`array` with `array[index : index + len(values)] = values`."""
    return lax.dynamic_update_slice_in_dim(
        array, _on_mesh_of(array, values), index, 0, allow_negative_indices=False
    )


def _on_mesh_of(array: Any, values: Any) -> Any:
    """The values, typed as of an array's mesh where they are of none.

    So is what was a number of Python's: with Explicit axes JAX tells the two apart.
    """
    mesh = jax.typeof(array).sharding.mesh
    if mesh.empty or not jax.typeof(values).sharding.mesh.empty:
        return values
    everywhere = PartitionSpec(*[None] * values.ndim)
    return jax.sharding.reshard(values, NamedSharding(mesh, everywhere))

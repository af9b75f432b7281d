"""A digest of JAX's arrays that is the same however they are sharded.

It is a sum over the elements, of a number that depends on an element's bits and its
place. So each device's part is added where it is: nothing is gathered, several
processes add what each has, and a run may be gone on with on another mesh.
"""

# JAX is found when there are arrays of it, and has no types here.
# pyright: standard

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_AT_ONCE = 1 << 18
"""Elements that are mixed at once."""


def digest_jax_array(value: Any) -> tuple[Array, list[Any]]:
    """The digest of an array, as an array, and what it is besides, as plain JSON.

    Of arrays with parts in other processes all of these have to ask together.
    """
    import numpy as np

    jax = import_module("jax")
    keys = ""
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
        keys, value = str(jax.random.key_impl(value)), jax.random.key_data(value)
    first = [part for part in value.addressable_shards if part.replica_id == 0]
    mine = [_mixed_part(np.asarray(part.data), part.index) for part in first]
    total = np.array([sum(mine) % 2**64], np.uint64)
    if not value.is_fully_addressable:
        # By halves: numbers of 64 bits are none of JAX's by default.
        utilities = import_module("jax.experimental.multihost_utils")
        rows = np.asarray(utilities.process_allgather(total.view(np.uint32)))
        total = rows.view(np.uint64).sum(axis=0, dtype=np.uint64)
    weak = bool(getattr(value, "weak_type", False))
    return total, ["jax", weak, keys, value.dtype.name, list(value.shape)]


def _mixed_part(array: Array, index: tuple[slice, ...]) -> int:
    """The sum over an array that is a part of another, from `index` on."""
    import numpy as np

    if not array.size:
        return 0
    bits = _bits(array)
    starts = [part.start or 0 for part in index]
    starts += [0] * (bits.ndim - len(starts))
    total, rows = 0, max(1, _AT_ONCE * len(bits) // bits.size)
    for row in range(0, len(bits), rows):
        piece = bits[row : row + rows].astype(np.uint64)
        places = np.zeros((1,) * piece.ndim, np.uint64)
        for axis, (size, start) in enumerate(zip(piece.shape, starts, strict=True)):
            begin = start + row if axis == 0 else start
            at = np.arange(begin, begin + size, dtype=np.uint64)
            behind = (1,) * (piece.ndim - axis - 1)
            places = _mix(places + at.reshape(-1, *behind))
        total += int(_mix(places ^ piece).sum(dtype=np.uint64))
    return total


def _bits(array: Array) -> Array:
    """The elements as numbers without sign, on at least one axis."""
    import numpy as np

    array = np.ascontiguousarray(np.atleast_1d(array))
    size = array.dtype.itemsize
    if size > 8:  # Complex numbers, by their halves.
        return array[..., None].view("u8")
    return array.view(f"u{size}")


def _mix(values: Array) -> Array:
    """Mix the bits of 64-bit numbers, as the generator SplitMix64 does."""
    import numpy as np

    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))

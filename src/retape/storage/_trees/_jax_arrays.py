"""JAX's arrays as leaves: copied where they are, and made of NumPy's again.

Nobody can write to one, but a compiled step may have its argument *donated*, and then
the array is gone: so what is kept is a copy here, too. A copy keeps what a step can
observe: the type and whether it is weak, the device or the sharding and whether it was
chosen. Nothing here imports JAX: a process that has not imported it has no such arrays.

Their digest is the same however they are sharded. It is a sum over the elements, of a
number that depends on an element's bits and its place. So each device's part is added
where it is: nothing is gathered, several processes add what each has, and a run may be
gone on with on another mesh.
"""

# JAX is found when there are arrays of it, and has no types here.
# pyright: standard

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np

from retape._errors import SnapshotError, StoreError
from retape.storage._trees._arrays import Array


def is_jax_array(value: object) -> bool:
    """Tell whether a value is an array of JAX's, and not one that is traced."""
    jax: Any = sys.modules.get("jax")
    kind = getattr(jax, "Array", None)
    return kind is not None and isinstance(value, kind) and not is_traced(value)


def is_traced(value: object) -> bool:
    """Tell whether a value stands for an array in a function that JAX traces."""
    jax: Any = sys.modules.get("jax")
    core = getattr(jax, "core", None)
    return core is not None and isinstance(value, core.Tracer)


def jax_to_array(value: Any) -> tuple[Array, list[Any]]:
    """The array that a file holds, and what it must say besides, as plain JSON.

    Raises:
        StoreError: If it is on several devices.
    """
    jax: Any = sys.modules["jax"]
    devices = value.sharding.device_set
    if len(devices) > 1:
        raise StoreError(
            f"an array of shape {value.shape} is on {len(devices)} devices, and this "
            "store writes what is on one. Use a `retape.storage.ZarrStore`, which "
            "writes each device's part, or a `retape.MemoryStore`."
        )
    keys = ""
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
        keys, found = str(jax.random.key_impl(value)), jax.random.key_data(value)
    else:
        found = value
    weak, place = bool(getattr(found, "weak_type", False)), None
    if getattr(value, "committed", True):
        (device,) = devices
        place = [device.platform, device.id, value.sharding.memory_kind]
    return np.asarray(found), ["jax", weak, keys, place]


def jax_from_array(array: Array, note: list[Any]) -> Any:
    """The array of JAX's that was written.

    Raises:
        SnapshotError: If this process has no JAX, not that device or not that type.
    """
    jax: Any = sys.modules.get("jax")
    if jax is None:
        raise SnapshotError(
            "a snapshot holds arrays of JAX's. Import `jax` before the call."
        )
    _, weak, keys, place = note
    found = jax.numpy.array(array)
    if found.dtype != array.dtype:
        raise SnapshotError(
            f"a snapshot holds an array of dtype `{array.dtype}`, and this process "
            f"would make `{found.dtype}` of it. Set `jax_enable_x64` as it was."
        )
    if weak:
        # A sum of one like this takes the type of the other. Only numbers are made so;
        # an array that is written into keeps it.
        zero = jax.numpy.asarray(array.dtype.type(0).item())
        found = jax.numpy.broadcast_to(zero, array.shape).at[...].set(found)
        if not found.weak_type or found.dtype != array.dtype:
            raise SnapshotError(
                f"a snapshot holds an array of weak dtype `{array.dtype}`, which this "
                "process cannot make. Its state is recomputed."
            )
    found = jax.random.wrap_key_data(found, impl=keys) if keys else found
    return found if place is None else jax.device_put(found, _sharding(jax, *place))


def _sharding(jax: Any, platform: str, number: int, memory: str | None) -> Any:
    try:
        devices = [d for d in jax.local_devices(backend=platform) if d.id == number]
    except RuntimeError:
        devices = []
    if not devices:
        raise SnapshotError(
            f"a snapshot holds an array of the device {platform}:{number}, which this "
            "process has not. Its state is recomputed."
        )
    return jax.sharding.SingleDeviceSharding(devices[0], memory_kind=memory)


_AT_ONCE = 1 << 18
"""Elements that are mixed at once."""


def digest_jax_array(value: Any) -> tuple[Array, list[Any]]:
    """The digest of an array, as an array, and what it is besides, as plain JSON.

    Of arrays with parts in other processes all of these have to ask together.
    """
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
    array = np.ascontiguousarray(np.atleast_1d(array))
    size = array.dtype.itemsize
    if size > 8:  # Complex numbers, by their halves.
        return array[..., None].view("u8")
    return array.view(f"u{size}")


def _mix(values: Array) -> Array:
    """Mix the bits of 64-bit numbers, as the generator SplitMix64 does."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))

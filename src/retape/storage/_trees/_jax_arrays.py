"""JAX's arrays as leaves: copied where they are, and made of NumPy's again.

Nobody can write to one, but a compiled step may have its argument *donated*, and then
the array is gone: so what is kept is a copy here, too. A copy keeps what a step can
observe: the type and whether it is weak, the device or the sharding and whether it was
chosen. Nothing here imports JAX: a process that has not imported it has no such arrays.
"""

# JAX is found when there are arrays of it, and has no types here.
# pyright: standard

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from retape._errors import SnapshotError, StoreError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


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
    import numpy as np

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

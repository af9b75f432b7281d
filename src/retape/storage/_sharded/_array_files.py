"""One array as Zarr, by TensorStore: each device's part is a chunk of its own.

Of an array that several devices have, a part is written once, by the process that has
its first copy. The chunks carry checksums, and each is written even where it is zero:
so one that is missing is known to be lost.
"""

# TensorStore and JAX are found when they are needed, and have no types here.
# pyright: standard

from __future__ import annotations

from dataclasses import astuple, dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from retape._errors import SnapshotError
from retape.storage._trees._kinds import register_state

if TYPE_CHECKING:
    from pathlib import Path


DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 "
    "bfloat16 complex64 complex128".split()
)
"""What a Zarr array may consist of; others are written as a `DiskStore` writes them."""


@dataclass(frozen=True, slots=True)
class SavedArray:
    """Where an array of a snapshot is.

    Attributes:
        folder: The snapshot's.
        name: The array's, a number.
        shape: Its shape.
        dtype: The name of its type.
        spec: For each axis the names of the mesh's axes that it is sharded along.
        keys: The generator, if it is the data of random keys.
        is_placed: Whether somebody has chosen its devices. If nobody has, it goes where
            JAX wants it.
    """

    folder: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    spec: tuple[tuple[str, ...], ...]
    keys: str = ""
    is_placed: bool = True


register_state(
    SavedArray,
    copy=lambda saved: saved,
    nbytes=lambda saved: 0,
    to_arrays=astuple,
    from_arrays=lambda parts: SavedArray(*parts),
)


def begin_to_write(where: Path, array: Any, *, is_first: bool) -> list[Any]:
    """Begin to write this process's parts of an array, from the devices that have them.

    Args:
        where: The folder of the array.
        array: What to write.
        is_first: Whether this process says what the array is. Others know it, too, and
            may write their parts before.
    """
    chunks = array.sharding.shard_shape(array.shape)
    metadata = {
        "shape": list(array.shape),
        "data_type": array.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "crc32c"},
        ],
    }
    if is_first:
        target = _opened(where, metadata, create=True, open=True)
    else:
        target = _opened(where, metadata, open=True, assume_metadata=True)
    shards = [part for part in array.addressable_shards if part.replica_id == 0]
    return [target[part.index].write(np.asarray(part.data)) for part in shards]


def read_saved(where: Path, saved: SavedArray, sharding: Any) -> Any:
    """The array again: of each device of this process its part, and nothing else.

    Raises:
        SnapshotError: If a part is not there or damaged.
    """
    jax = import_module("jax")
    try:
        source = _opened(where, open=True, read=True)
        if source.shape != saved.shape or source.dtype.name != saved.dtype:
            raise ValueError("of another shape or type")
        if sharding is None:
            found = jax.numpy.asarray(source.read().result())
        else:
            found = jax.make_array_from_callback(
                saved.shape, sharding, lambda index: source[index].read().result()
            )
    except (ValueError, OSError) as error:
        reason = str(error).partition(" [")[0]
        raise SnapshotError(
            f"`{where}` is not there or damaged ({reason}). Its state is recomputed."
        ) from None
    return jax.random.wrap_key_data(found, impl=saved.keys) if saved.keys else found


def key_data(array: Any) -> tuple[str, Any]:
    """The generator of random keys and their data; of others no generator."""
    jax = import_module("jax")
    if not jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended):
        return "", array
    return str(jax.random.key_impl(array)), jax.random.key_data(array)


def spec_of(sharding: Any, ndim: int) -> tuple[tuple[str, ...], ...]:
    """The names of the mesh's axes for each axis of an array."""
    given = list(getattr(sharding, "spec", None) or ())
    given += [None] * (ndim - len(given))
    names = [(n,) if isinstance(n, str) else n for n in given]
    return tuple(n if isinstance(n, tuple) else () for n in names)


def sharding_on(mesh: Any, saved: SavedArray) -> Any:
    """A sharding along the axes of the same names that the shape can be divided by."""
    jax = import_module("jax")
    sizes = dict(mesh.shape)
    axes: list[tuple[str, ...]] = []
    for names, size in zip(saved.spec, saved.shape, strict=True):
        kept: tuple[str, ...] = ()
        for name in names:
            size, left = divmod(size, sizes.get(name, size + 1))
            if left or not size:
                break
            kept = (*kept, name)
        axes.append(kept)
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))


def _opened(where: Path, metadata: Any = None, **how: Any) -> Any:
    spec: dict[str, Any] = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": f"{where}/"},
        "store_data_equal_to_fill_value": True,
        "fill_missing_data_reads": False,
    }
    if metadata is not None:
        spec["metadata"] = metadata
    return import_module("tensorstore").open(spec, **how).result()

"""A store that writes fewer bytes: arrays go through a codec on their way.

What is written says how it is read: the kind of its bytes, its type and its shape.
Bytes never unpack to more than a thousand times their number; what would is written
with zeros behind it, so that a file cannot claim more memory than it is honest about.
"""

# Snapshots are of any type, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import json
from math import prod
from typing import Any, TypeVar

import numpy as np

from retape._errors import SnapshotError
from retape.storage._base import (
    Key,
    Place,
    Record,
    SnapshotStore,
    StoreWrapper,
    check_store_inside,
)
from retape.storage._codec import UNREADABLE
from retape.storage._codecs._codec import Codec, named
from retape.storage._codecs._packers import (
    damaged,
    pack_bytes,
    pack_rounded,
    roundable_numbers,
    unpack_rounded,
    unpacked,
)
from retape.storage._trees._arrays import Array
from retape.storage._trees._serialize import (
    dtype_from_json,
    dtype_to_json,
    lay_out,
    strip,
    unstrip,
)

C = TypeVar("C")

_MARK = "retape-packed-2"


class CodecStore(StoreWrapper[C]):
    """Packs the arrays of snapshots before another store keeps them.

    The bytes that are counted, by capacities, plans and reports, are those that are
    kept. Without loss no result changes. With loss a state that is restored is near
    what it was, and so is the gradient: a run without it tells how near. The value
    of the run is exact.

    Args:
        inner: Any store. Packing goes on in the background in an
            `AsyncStore(CodecStore(...))`.
        codec: "lossless" (bytes of the same place in a number beside each other, then
            Zstandard, or zlib without it); or, with a loss, "float32", "float16",
            "bfloat16" or `bounded(...)`.

    Plans in bytes count with the factor of a codec that has a fixed one, and else with
    none.

    Attributes:
        raw_bytes: Bytes of all snapshots that were put, before they were packed.
        packed_bytes: Bytes of the same, packed.
        largest_error: Of a number of a snapshot, relative to the largest number of its
            array.

    Raises:
        PlanError: If the codec cannot be.
        StoreError: If `inner` is no store, or packs capsules itself.

    Examples:
        >>> import numpy as np
        >>> from retape import MemoryStore
        >>> from retape.storage import CodecStore, Place, bounded
        >>> store = CodecStore(MemoryStore(), bounded(relative=1e-3))
        >>> field = np.sin(np.linspace(0, 3, 10_000))
        >>> store.put(Place(0, 0), field, field.nbytes)
        >>> store.raw_bytes, store.packed_bytes < 8_000, store.largest_error < 1e-3
        (80000, True, True)
    """

    def __init__(
        self, inner: SnapshotStore[C], codec: str | Codec = "lossless"
    ) -> None:
        check_store_inside("CodecStore", inner)
        self.inner: Any = inner
        self.codec = named(codec)
        self.raw_bytes = self.packed_bytes = 0
        self.largest_error = 0.0
        self._sizes: dict[Key, int] = {}

    def __repr__(self) -> str:
        return f"CodecStore({self.inner!r}, codec={self.codec})"

    @property
    def gives_copies(self) -> bool:
        """What `get` returns was unpacked for it."""
        return True

    @property
    def needs_arrays(self) -> bool:
        return True

    @property
    def keeps_devices(self) -> bool:
        return False

    @property
    def counts_other_bytes(self) -> bool:
        return True

    @property
    def is_lossy(self) -> bool:
        return self.codec.is_lossy or self.inner.is_lossy

    def capsule_bytes(self, capsule: C, nbytes: int) -> int:
        """What a plan in bytes should count for a capsule of so many bytes."""
        return self._packed(capsule)[1] if self.codec.has_fixed_size else nbytes

    def open(self, label: str) -> Record | None:
        self._sizes.clear()
        # Another codec would give other bits: that is another run.
        return self.inner.open(f"{label}\n`codec`: {self.codec}")

    def forget(self) -> None:
        self._sizes.clear()
        self.inner.forget()

    def save(self, place: Place, nbytes: int) -> bool:
        return self.inner.save(place, self._sizes.get(place.key, nbytes))

    def put(self, place: Place, capsule: C, nbytes: int) -> None:
        packed, size = self._packed(capsule)
        self._measure(capsule, packed)
        self.raw_bytes += nbytes
        self.packed_bytes += size
        self._sizes[place.key] = size
        self.inner.put(place, packed, size)

    def get(self, place: Place) -> C:
        return _unpacked(self.inner.get(place), place.step)

    def drop(self, place: Place) -> None:
        self._sizes.pop(place.key, None)
        self.inner.drop(place)

    def _packed(self, capsule: Any) -> tuple[Any, int]:
        parts = lay_out(strip(capsule))
        specs, data = [], []
        for leaf in parts.stored:
            spec, packed = compress(leaf, self.codec)
            specs.append(spec)
            data.append(packed)
        text = json.dumps([parts.tree, specs])
        return (_MARK, text, data), len(text) + sum(d.nbytes for d in data)

    def _measure(self, capsule: Any, packed: Any) -> None:
        """Compare what a codec with a loss would give back with what it was given."""
        if not self.codec.is_lossy:
            return
        specs = json.loads(packed[1])[1]
        leaves = lay_out(strip(capsule)).stored
        for leaf, spec, data in zip(leaves, specs, packed[2], strict=True):
            if leaf.dtype.kind in "fc" and leaf.size:
                largest = float(np.abs(leaf).max())
                if not 0 < largest < np.inf:
                    continue  # The difference of what is infinite says nothing.
                error = float(np.abs(decompress(spec, data) - leaf).max())
                self.largest_error = max(self.largest_error, error / largest)


def _unpacked(found: Any, step: int) -> Any:
    try:
        mark, text, data = found
        if mark != _MARK:
            raise ValueError
        tree, specs = json.loads(text)
        arrays = [decompress(s, d) for s, d in zip(specs, data, strict=True)]
        return unstrip(tree, arrays)[0]
    except SnapshotError:
        raise
    except UNREADABLE as error:
        raise SnapshotError(
            f"the snapshot of step {step} was not written by a `CodecStore`, or is "
            f"damaged ({type(error).__name__}). Its state is recomputed."
        ) from None


MOST = 1000
"""A byte unpacks to no more than so many."""


def compress(array: Array, codec: Codec) -> tuple[dict[str, Any], Array]:
    """What a file says about the bytes, and the bytes.

    Raises:
        PlanError: If a number is too large for the type that it is rounded to.
    """
    is_turned = array.flags.f_contiguous and not array.flags.c_contiguous
    flat = np.asarray(array.T if is_turned else array, order="C")
    spec: dict[str, Any] = {
        "d": dtype_to_json(array.dtype),
        "n": flat.shape,
        "f": is_turned,
    }
    numbers = roundable_numbers(flat) if codec.is_lossy else None
    how, data = ("", b"") if numbers is None else pack_rounded(numbers, codec)
    if not how:
        how, data = pack_bytes(flat, codec)
    padding = -(-flat.nbytes // MOST) - len(data)
    data += bytes(max(0, padding))
    return spec | {"k": how, "l": len(data) - max(0, padding)}, np.frombuffer(
        data, np.uint8
    )


def decompress(spec: dict[str, Any], data: Array) -> Array:
    """The array.

    Raises:
        SnapshotError: If the bytes unpack to more or fewer than they should.
    """
    dtype, shape = dtype_from_json(spec["d"]), tuple(spec["n"])
    nbytes = dtype.itemsize * prod(shape)
    if dtype.hasobject or nbytes > MOST * len(data) or min(shape, default=0) < 0:
        raise damaged(f"{nbytes} bytes are claimed of {len(data)}")
    raw = data[: spec["l"]].tobytes()
    kind, _, scale = spec["k"].partition(" ")
    if kind in ("none", "zlib+", "zstd+"):
        text = unpacked(raw, kind, nbytes, dtype.itemsize)
        flat = np.frombuffer(text, dtype).reshape(shape).copy()
    else:
        real = dtype if dtype.kind == "f" else np.dtype(f"f{dtype.itemsize // 2}")
        wide = shape if dtype.kind == "f" else (*shape[:-1], 2 * shape[-1])
        flat = unpack_rounded(raw, kind, scale, real, wide).view(dtype).reshape(shape)
    return flat.T if spec["f"] else flat

"""Arrays to fewer bytes and back: lossless, rounded, or within an error bound.

What is written says how it is read: the kind of its bytes, its type and its shape.
Bytes never unpack to more than a thousand times their number; what would is written
with zeros behind it, so that a file cannot claim more memory than it is honest about.
"""

# Arrays are of any type, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from retape.storage._codecs._codec import Codec
from retape.storage._codecs._lossless import pack_bytes, unpacked
from retape.storage._codecs._lossy import (
    pack_rounded,
    roundable_numbers,
    unpack_rounded,
)
from retape.storage._codecs._packers import damaged
from retape.storage._trees._dtypes import dtype_from_json, dtype_to_json

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

MOST = 1000
"""A byte unpacks to no more than so many."""


def compress(array: Array, codec: Codec) -> tuple[dict[str, Any], Array]:
    """What a file says about the bytes, and the bytes.

    Raises:
        PlanError: If a number is too large for the type that it is rounded to.
    """
    import numpy as np

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
    import numpy as np

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

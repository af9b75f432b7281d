"""Bytes to fewer bytes and back, without loss: zlib, Zstandard, shuffled."""

# Arrays are of any type, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retape.storage._codecs._codec import Codec
from retape.storage._codecs._packers import damaged, expanded, has_zstd, packed_by

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


def pack_bytes(flat: Array, codec: Codec) -> tuple[str, bytes]:
    raw = flat.tobytes()
    if codec.has_fixed_size:
        return "none", raw
    return shuffled(raw, flat.dtype.itemsize)


def shuffled(raw: bytes, itemsize: int) -> tuple[str, bytes]:
    """Bytes of the same place in a number beside each other, and packed."""
    import numpy as np

    name = "zstd" if has_zstd() else "zlib"
    bytes_of = np.frombuffer(raw, np.uint8)
    if itemsize > 1:
        bytes_of = bytes_of.reshape(-1, itemsize).T
    packed = packed_by(bytes_of.tobytes(), name)
    return (f"{name}+", packed) if len(packed) < len(raw) else ("none", raw)


def unpacked(raw: bytes, kind: str, nbytes: int, itemsize: int) -> bytes:
    """What `pack_bytes` or `shuffled` was given."""
    import numpy as np

    text = raw if kind == "none" else expanded(raw, kind[:4], nbytes)
    if len(text) != nbytes:
        raise damaged(f"{len(text)} bytes are there of {nbytes}")
    if kind.endswith("+") and itemsize > 1:
        return np.frombuffer(text, np.uint8).reshape(itemsize, -1).T.tobytes()
    return text

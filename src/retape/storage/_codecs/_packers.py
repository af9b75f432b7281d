"""Bytes to fewer bytes and back, without loss: zlib, Zstandard, shuffled."""

# Arrays are of any type, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import zlib
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from retape._errors import MissingPackageError, SnapshotError
from retape._extras import require
from retape.storage._codecs._codec import Codec
from retape.storage._trees._arrays import Array


def has_zstd() -> bool:
    """Whether Zstandard can be used: Python's own from 3.14 on, or `zstandard`."""
    return find_spec("compression") is not None or find_spec("zstandard") is not None


def zstd_module() -> Any:
    if find_spec("compression") is not None:
        return import_module("compression.zstd")
    require("codecs", "zstandard")
    return import_module("zstandard")


def packed_by(raw: bytes, name: str) -> bytes:
    return zlib.compress(raw, 1) if name == "zlib" else zstd_module().compress(raw, 3)


def expanded(raw: bytes, name: str, nbytes: int) -> bytes:
    """Unpack no more than was claimed."""
    try:
        if name == "zlib":
            return zlib.decompressobj().decompress(raw, nbytes + 1)
        zstd = zstd_module()
        if hasattr(zstd, "ZstdDecompressor") and zstd.__name__ != "zstandard":
            return zstd.ZstdDecompressor().decompress(raw, nbytes + 1)
        reader = zstd.ZstdDecompressor().stream_reader(raw)
        return reader.read(nbytes + 1)
    except MissingPackageError:
        raise
    except Exception as error:
        raise damaged(f"{name} cannot unpack it ({type(error).__name__})") from None


def must_be(found: int, expected: int) -> None:
    if found != expected:
        raise damaged(f"{found} are there of {expected}")


def damaged(why: str) -> SnapshotError:
    return SnapshotError(
        f"a packed array is damaged, or is not of this library: {why}. Its state is "
        "recomputed."
    )


def pack_bytes(flat: Array, codec: Codec) -> tuple[str, bytes]:
    raw = flat.tobytes()
    if codec.has_fixed_size:
        return "none", raw
    return shuffled(raw, flat.dtype.itemsize)


def shuffled(raw: bytes, itemsize: int) -> tuple[str, bytes]:
    """Bytes of the same place in a number beside each other, and packed."""
    name = "zstd" if has_zstd() else "zlib"
    bytes_of = np.frombuffer(raw, np.uint8)
    if itemsize > 1:
        bytes_of = bytes_of.reshape(-1, itemsize).T
    packed = packed_by(bytes_of.tobytes(), name)
    return (f"{name}+", packed) if len(packed) < len(raw) else ("none", raw)


def unpacked(raw: bytes, kind: str, nbytes: int, itemsize: int) -> bytes:
    """What `pack_bytes` or `shuffled` was given."""
    text = raw if kind == "none" else expanded(raw, kind[:4], nbytes)
    if len(text) != nbytes:
        raise damaged(f"{len(text)} bytes are there of {nbytes}")
    if kind.endswith("+") and itemsize > 1:
        return np.frombuffer(text, np.uint8).reshape(itemsize, -1).T.tobytes()
    return text

"""Numbers to fewer bytes and back.

Without loss: zlib or Zstandard, shuffled. With one: rounded, or within an error bound.
"""

# Arrays are of any type, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import zlib
from importlib import import_module
from importlib.util import find_spec
from math import prod
from typing import Any

import numpy as np

from retape._errors import MissingPackageError, PlanError, SnapshotError
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


# With a loss ----------------------------------------------------------------------


def roundable_numbers(flat: Array) -> Array | None:
    """The numbers of an array that may be rounded, as real ones; `None` if none may."""
    kind, size = flat.dtype.kind, flat.dtype.itemsize
    if flat.size == 0 or flat.ndim == 0 or not flat.dtype.isnative:
        return None
    if kind == "f" and size in (4, 8):
        return flat
    if kind == "c" and size in (8, 16):
        return flat.view(f"f{size // 2}")
    return None


def pack_rounded(x: Array, codec: Codec) -> tuple[str, bytes]:
    """The kind and the bytes of rounded numbers; nothing if the bound is not kept."""
    if codec.kind == "bfloat16":
        return "bfloat16", _to_bfloat16(x)
    if codec.kind in Codec.CASTS:
        with np.errstate(over="ignore"):
            rounded = x.astype(Codec.CASTS[codec.kind])
        _refuse_overflow(x, rounded, codec.kind)
        return codec.kind, rounded.tobytes()
    largest = float(np.abs(x).max())
    bound = codec.error if codec.is_absolute else codec.error * largest
    if not np.isfinite(largest):
        return "", b""
    if bound == 0.0:
        return "", b""  # All are zero.
    how, data = _multiples(x, bound)
    if how:
        kind, _, scale = how.partition(" ")
        back = unpack_rounded(data, kind, scale, x.dtype, x.shape)
        if not np.abs(back.astype("f8") - x).max() <= bound:
            return "", b""
    return how, data


def unpack_rounded(
    raw: bytes, kind: str, scale: str, dtype: Any, shape: tuple[int, ...]
) -> Array:
    count = prod(shape)
    if kind == "bfloat16":
        must_be(len(raw), 2 * count)
        wide = np.frombuffer(raw, np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32).astype(dtype).reshape(shape)
    if kind in Codec.CASTS:
        narrow = np.dtype(Codec.CASTS[kind])
        must_be(len(raw), narrow.itemsize * count)
        return np.frombuffer(raw, narrow).astype(dtype).reshape(shape)
    name, _, packing = kind.partition("-")
    if name not in ("bounded1", "bounded2"):
        raise damaged(f"its kind is {kind!r}")
    text = unpacked(raw, packing, 4 * count, 4)
    folded = np.frombuffer(text, np.uint32).reshape(shape)
    whole = (folded >> 1).view(np.int32) ^ -(folded & 1).view(np.int32)
    for axis in _axes(shape, int(name[-1])):
        np.cumsum(whole, axis=axis, dtype=np.int32, out=whole)
    return (whole * float.fromhex(scale)).astype(dtype)


def _multiples(x: Array, bound: float) -> tuple[str, bytes]:
    """Multiples of nearly twice the bound; smooth fields have small differences."""
    scale = 2.0 * bound * (1.0 - 1e-6)
    multiples = np.rint(np.asarray(x, np.float64) / scale)
    if not np.abs(multiples).max() < 2**31:
        return "", b""
    found: list[tuple[float, int, Array]] = []
    for order in (1, 2):
        whole = multiples.astype(np.int32)
        for axis in _axes(x.shape, order):
            # Differences wrap around, and sums wrap back.
            whole = np.diff(whole, axis=axis, prepend=np.int32(0))
        bits = np.log1p(np.abs(whole, dtype=np.float64))
        found.append((float(bits.sum()), order, whole))
    _, order, whole = min(found, key=lambda of: of[:2])
    # Signs last, so that the high bytes of small numbers are zero.
    folded = (whole << 1) ^ (whole >> 31)
    kind, data = shuffled(np.ascontiguousarray(folded).tobytes(), 4)
    return f"bounded{order}-{kind} {float(scale).hex()}", data


def _axes(shape: tuple[int, ...], order: int) -> list[int]:
    """The axes along which differences are taken, twice if they are long enough."""
    first = list(range(len(shape)))
    return first + [axis for axis in first if order == 2 and shape[axis] >= 8]


def _to_bfloat16(x: Array) -> bytes:
    """Round to the nearest number with 8 bits of exponent and 7 of fraction."""
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(x.astype(np.float32))
    bits = single.view(np.uint32)
    up = (bits >> 16) & 1
    rounded = ((bits + np.uint32(0x7FFF) + up) >> 16).astype(np.uint16)
    rounded[np.isnan(single)] = 0x7FC0
    wide = (rounded.astype(np.uint32) << 16).view(np.float32)
    _refuse_overflow(x, wide, "bfloat16")
    return rounded.tobytes()


def _refuse_overflow(x: Array, rounded: Array, name: str) -> None:
    if np.isinf(rounded).sum() > np.isinf(x).sum():
        raise PlanError(
            f"`codec={name!r}` cannot hold {float(np.abs(x).max()):.3g}, which is in a "
            "snapshot: it would become infinite. Scale the state, or pass 'bfloat16' "
            "or `retape.storage.bounded(relative=1e-4)`."
        )

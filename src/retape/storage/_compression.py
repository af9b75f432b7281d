"""Arrays to fewer bytes and back: lossless, rounded, or within an error bound.

What is written says how it is read: the kind of its bytes, its type and its shape.
Bytes never unpack to more than a thousand times their number; what would is written
with zeros behind it, so that a file cannot claim more memory than it is honest about.
"""

# Arrays are of any type, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import zlib
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from retape._errors import MissingPackageError, PlanError, SnapshotError
from retape._extras import install_line
from retape.storage._trees._dtypes import dtype_from_json, dtype_to_json

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

MOST = 1000
"""A byte unpacks to no more than so many."""


@dataclass(frozen=True, slots=True)
class Codec:
    """How arrays are written; make one by its name, or by `bounded`.

    Attributes:
        kind: "none", "zlib", "zstd", "lossless", "float32", "float16", "bfloat16",
            "bounded" or "zfp".
        error: The largest error of "bounded" and "zfp", relative to the largest number
            of an array, or absolute.
        is_absolute: Which of the two.
    """

    kind: str
    error: float = 0.0
    is_absolute: bool = False

    LOSSLESS: ClassVar[frozenset[str]] = frozenset({"none", "zlib", "zstd", "lossless"})
    CASTS: ClassVar[dict[str, str]] = {"float32": "f4", "float16": "f2"}
    BOUNDED: ClassVar[frozenset[str]] = frozenset({"bounded", "zfp"})

    @property
    def is_lossy(self) -> bool:
        """Whether numbers come back only near what they were."""
        return self.kind not in self.LOSSLESS

    @property
    def has_fixed_size(self) -> bool:
        """Whether the bytes depend on types and shapes alone."""
        return self.kind in ("none", "bfloat16", *self.CASTS)

    def __str__(self) -> str:
        if self.kind not in self.BOUNDED:
            return repr(self.kind)
        how = "absolute" if self.is_absolute else "relative"
        return f"bounded({how}={self.error:g}, by={self.kind!r})"


def named(codec: str | Codec) -> Codec:
    """A codec by its name.

    Raises:
        PlanError: If there is none of this name.
        MissingPackageError: If it needs a package that is not installed.
    """
    if isinstance(codec, Codec):
        return codec
    known = sorted({*Codec.LOSSLESS, *Codec.CASTS, "bfloat16"})
    if codec not in known:
        raise PlanError(
            f"`codec={codec!r}` is not known. Pass {', '.join(map(repr, known))}, or "
            "`retape.storage.bounded(relative=1e-4)` for an error bound."
        )
    if codec == "zstd":
        _zstd()
    return Codec(codec)


def bounded(
    *, relative: float | None = None, absolute: float | None = None, by: str = "bounded"
) -> Codec:
    """A codec that writes floating-point numbers within an error bound.

    Each array that is written is read back and compared, so the bound is kept, or the
    array is written without loss (where it has infinite numbers, for instance).

    Args:
        relative: The largest error, relative to the largest number of an array; or
        absolute: the largest error itself.
        by: "bounded" for multiples of twice the bound, their differences along each
            axis packed; or "zfp" for the library of this name (extra `codecs`).

    Raises:
        PlanError: If both bounds are given or none, or one is not positive.
        MissingPackageError: For "zfp", if `zfpy` is not installed.

    Examples:
        >>> from retape.storage import bounded
        >>> print(bounded(relative=1e-4))
        bounded(relative=0.0001, by='bounded')
    """
    given = relative if absolute is None else absolute
    if (relative is None) == (absolute is None) or not _is_positive(given):
        raise PlanError(
            f"`bounded(relative={relative!r}, absolute={absolute!r})` cannot be: pass "
            "one of them, a positive number."
        )
    if by not in Codec.BOUNDED:
        raise PlanError(f"`by={by!r}` is not known. Pass 'bounded' or 'zfp'.")
    if by == "zfp":
        _package("zfpy")
    return Codec(by, float(given or 0.0), relative is None)


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
    numbers = _numbers(flat) if codec.is_lossy else None
    how, data = ("", b"") if numbers is None else _lossy(numbers, codec)
    if not how:
        how, data = _lossless(flat, codec)
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
        raise _damaged(f"{nbytes} bytes are claimed of {len(data)}")
    raw = data[: spec["l"]].tobytes()
    kind, _, scale = spec["k"].partition(" ")
    if kind in ("none", "zlib", "zstd", "zlib+", "zstd+"):
        text = _unpacked(raw, kind, nbytes, dtype.itemsize)
        flat = np.frombuffer(text, dtype).reshape(shape).copy()
    else:
        real = dtype if dtype.kind == "f" else np.dtype(f"f{dtype.itemsize // 2}")
        wide = shape if dtype.kind == "f" else (*shape[:-1], 2 * shape[-1])
        flat = _from_lossy(raw, kind, scale, real, wide).view(dtype).reshape(shape)
    return flat.T if spec["f"] else flat


def _lossless(flat: Array, codec: Codec) -> tuple[str, bytes]:
    raw = flat.tobytes()
    if codec.kind in ("none", *Codec.CASTS, "bfloat16"):
        return "none", raw
    if codec.kind in ("zlib", "zstd"):
        packed = _packed(raw, codec.kind)
        return (codec.kind, packed) if len(packed) < len(raw) else ("none", raw)
    return _shuffled(raw, flat.dtype.itemsize)


def _shuffled(raw: bytes, itemsize: int) -> tuple[str, bytes]:
    """Bytes of the same place in a number beside each other, and packed."""
    import numpy as np

    name = "zstd" if has_zstd() else "zlib"
    bytes_of = np.frombuffer(raw, np.uint8)
    if itemsize > 1:
        bytes_of = bytes_of.reshape(-1, itemsize).T
    packed = _packed(bytes_of.tobytes(), name)
    return (f"{name}+", packed) if len(packed) < len(raw) else ("none", raw)


def _unpacked(raw: bytes, kind: str, nbytes: int, itemsize: int) -> bytes:
    """What `_lossless` or `_shuffled` was given."""
    import numpy as np

    text = raw if kind == "none" else _expanded(raw, kind[:4], nbytes)
    if len(text) != nbytes:
        raise _damaged(f"{len(text)} bytes are there of {nbytes}")
    if kind.endswith("+") and itemsize > 1:
        return np.frombuffer(text, np.uint8).reshape(itemsize, -1).T.tobytes()
    return text


def _numbers(flat: Array) -> Array | None:
    """The numbers of an array that may be rounded, as real ones; `None` if none may."""
    kind, size = flat.dtype.kind, flat.dtype.itemsize
    if flat.size == 0 or flat.ndim == 0 or not flat.dtype.isnative:
        return None
    if kind == "f" and size in (4, 8):
        return flat
    if kind == "c" and size in (8, 16):
        return flat.view(f"f{size // 2}")
    return None


def _lossy(x: Array, codec: Codec) -> tuple[str, bytes]:
    """The kind and the bytes of rounded numbers; nothing if the bound is not kept."""
    import numpy as np

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
    how, data = _zfp(x, bound) if codec.kind == "zfp" else _multiples(x, bound)
    if how:
        kind, _, scale = how.partition(" ")
        back = _from_lossy(data, kind, scale, x.dtype, x.shape)
        if not np.abs(back.astype("f8") - x).max() <= bound:
            return "", b""
    return how, data


def _from_lossy(
    raw: bytes, kind: str, scale: str, dtype: Any, shape: tuple[int, ...]
) -> Array:
    import numpy as np

    count = prod(shape)
    if kind == "bfloat16":
        _must_be(len(raw), 2 * count)
        wide = np.frombuffer(raw, np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32).astype(dtype).reshape(shape)
    if kind in Codec.CASTS:
        narrow = np.dtype(Codec.CASTS[kind])
        _must_be(len(raw), narrow.itemsize * count)
        return np.frombuffer(raw, narrow).astype(dtype).reshape(shape)
    if kind == "zfp":
        zfpy: Any = _package("zfpy")
        found = zfpy.decompress_numpy(raw)
        _must_be(found.size, count)
        return found.astype(dtype, copy=False).reshape(shape)
    name, _, packing = kind.partition("-")
    if name not in ("bounded1", "bounded2"):
        raise _damaged(f"its kind is {kind!r}")
    text = _unpacked(raw, packing, 4 * count, 4)
    folded = np.frombuffer(text, np.uint32).reshape(shape)
    whole = (folded >> 1).view(np.int32) ^ -(folded & 1).view(np.int32)
    for axis in _axes(shape, int(name[-1])):
        np.cumsum(whole, axis=axis, dtype=np.int32, out=whole)
    return (whole * float.fromhex(scale)).astype(dtype)


def _multiples(x: Array, bound: float) -> tuple[str, bytes]:
    """Multiples of nearly twice the bound; smooth fields have small differences."""
    import numpy as np

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
    kind, data = _shuffled(np.ascontiguousarray(folded).tobytes(), 4)
    return f"bounded{order}-{kind} {float(scale).hex()}", data


def _axes(shape: tuple[int, ...], order: int) -> list[int]:
    """The axes along which differences are taken, twice if they are long enough."""
    first = list(range(len(shape)))
    return first + [axis for axis in first if order == 2 and shape[axis] >= 8]


def _zfp(x: Array, bound: float) -> tuple[str, bytes]:
    zfpy: Any = _package("zfpy")
    shaped = x if x.ndim <= 4 else x.reshape(-1, *x.shape[-3:])
    return "zfp", zfpy.compress_numpy(shaped, tolerance=bound)


def _to_bfloat16(x: Array) -> bytes:
    """Round to the nearest number with 8 bits of exponent and 7 of fraction."""
    import numpy as np

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
    import numpy as np

    if np.isinf(rounded).sum() > np.isinf(x).sum():
        raise PlanError(
            f"`codec={name!r}` cannot hold {float(np.abs(x).max()):.3g}, which is in a "
            "snapshot: it would become infinite. Scale the state, or pass 'bfloat16' "
            "or `retape.storage.bounded(relative=1e-4)`."
        )


def has_zstd() -> bool:
    """Whether Zstandard can be used: Python's own from 3.14 on, or `zstandard`."""
    return find_spec("compression") is not None or find_spec("zstandard") is not None


def _zstd() -> Any:
    if find_spec("compression") is not None:
        return import_module("compression.zstd")
    return _package("zstandard")


def _packed(raw: bytes, name: str) -> bytes:
    return zlib.compress(raw, 1) if name == "zlib" else _zstd().compress(raw, 3)


def _expanded(raw: bytes, name: str, nbytes: int) -> bytes:
    """Unpack no more than was claimed."""
    try:
        if name == "zlib":
            return zlib.decompressobj().decompress(raw, nbytes + 1)
        zstd = _zstd()
        if hasattr(zstd, "ZstdDecompressor") and zstd.__name__ != "zstandard":
            return zstd.ZstdDecompressor().decompress(raw, nbytes + 1)
        reader = zstd.ZstdDecompressor().stream_reader(raw)
        return reader.read(nbytes + 1)
    except MissingPackageError:
        raise
    except Exception as error:
        raise _damaged(f"{name} cannot unpack it ({type(error).__name__})") from None


def _package(name: str) -> Any:
    if find_spec(name) is None:
        raise MissingPackageError(
            f"`{name}` cannot be imported, and this codec needs it. Run "
            f"`{install_line('codecs')}`, or pass `codec='lossless'`.",
            name=name,
        )
    return import_module(name)


def _must_be(found: int, expected: int) -> None:
    if found != expected:
        raise _damaged(f"{found} are there of {expected}")


def _damaged(why: str) -> SnapshotError:
    return SnapshotError(
        f"a packed array is damaged, or is not of this library: {why}. Its state is "
        "recomputed."
    )


def _is_positive(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and given > 0

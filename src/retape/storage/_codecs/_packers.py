"""The libraries that pack bytes, and the errors of damaged ones."""

# Arrays are of any type, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import zlib
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from retape._errors import MissingPackageError, SnapshotError
from retape._extras import require

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


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

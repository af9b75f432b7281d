"""Capsules to bytes and back: trees of NumPy arrays in the `.npz` format.

A file holds the arrays, and one member `tree` with a JSON text: the shape of the tree,
its plain Python leaves, what the file is, and a BLAKE2 digest of all of it.
`numpy.load` opens it; nothing is pickled, and nothing is compressed: a file that claims
more than its size is not read.
"""

# The trees are of any shape, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import io
import json
import zipfile
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from retape._errors import SnapshotError
from retape.storage._trees._arrays import digest_array
from retape.storage._trees._serialize import lay_out, strip, unstrip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


FORMAT = "retape-3"


def encode(value: object, label: dict[str, object]) -> bytes:
    """The bytes of a file that holds `value`, and says what it is in `label`."""
    parts = lay_out(strip(value))
    meta = {"format": FORMAT, "label": label, "tree": parts.tree}
    meta["digest"] = _digest(meta, parts.leaves)
    text = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    members = {f"array{i}": array for i, array in enumerate(parts.stored)}
    return _archive({"tree": text, **members})


def _archive(members: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """What `numpy.savez` makes, in a third of its time.

    `savez` copies an array in parts of 16 MiB, each through the archive: 9.6 ms for an
    array of 4 MB, of which the checksum of the archive takes 1.1. Here its memory goes
    there as it is.
    """
    from numpy.lib import format as npy

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in members.items():
            place = zipfile.ZipInfo(f"{name}.npy")
            with archive.open(place, "w", force_zip64=True) as member:
                if array.dtype.isbuiltin == 1 and array.flags.c_contiguous:
                    npy.write_array_header_1_0(
                        member, npy.header_data_from_array_1_0(array)
                    )
                    member.write(array.reshape(-1).view("u1").data)
                else:
                    npy.write_array(member, array, allow_pickle=False)
    return out.getvalue()


def decode(data: bytes, name: str) -> tuple[Any, dict[str, Any]]:
    """The value and the label in the bytes of a file.

    Raises:
        SnapshotError: If the file is truncated, altered or of another make.
    """
    try:
        _check_sizes(data)
        with np.load(io.BytesIO(data), allow_pickle=False) as members:
            meta = json.loads(members["tree"].tobytes())
            count = len(members.files) - 1
            arrays = [members[f"array{i}"] for i in range(count)]
        found = meta["format"]
        digest = meta.pop("digest") if found == FORMAT else ""
        value, leaves = unstrip(meta["tree"], arrays) if digest else (None, [])
        whole = digest == _digest(meta, leaves)
    except SnapshotError:
        raise
    except UNREADABLE as error:
        # NumPy's own words may advise to load the file in a way that runs its code.
        raise SnapshotError(
            f"`{name}` is not a snapshot of this library, or is damaged "
            f"({type(error).__name__}). Remove the file; its state is recomputed."
        ) from None
    if found != FORMAT:
        raise SnapshotError(
            f"`{name}` is not a snapshot of this version of the library: its format is "
            f"{found!r}. Remove the file; its state is recomputed."
        )
    if not whole:
        raise SnapshotError(
            f"`{name}` is damaged: its contents do not match their checksum. Remove "
            "the file; its state is recomputed."
        )
    return value, meta["label"]


def read_label(file: Path) -> dict[str, Any]:
    """The label of a file, its arrays left unread; nothing if it cannot be read."""
    try:
        with file.open("rb") as source:
            return label_in(source, file.stat().st_size)
    except OSError:
        return {}


def label_in(source: Any, size: int) -> dict[str, Any]:
    """The label in an open file of this size; nothing if it cannot be read."""
    try:
        _check_sizes(source, size)
        with np.load(source, allow_pickle=False) as members:
            return json.loads(members["tree"].tobytes())["label"]
    except UNREADABLE:
        return {}


UNREADABLE = (
    zipfile.BadZipFile,
    ValueError,
    AttributeError,
    KeyError,
    TypeError,
    EOFError,
    OSError,
    NotImplementedError,
    IndexError,
    OverflowError,
    MemoryError,
    RecursionError,
    AssertionError,
    SyntaxError,  # NumPy's, at some names of types.
)
"""What NumPy, `zipfile` and `json` raise at a file that is not what it should be."""


def _check_sizes(source: Any, size: int = -1) -> None:
    """Refuse an archive whose members are compressed, or larger than the archive."""
    if size < 0:
        source, size = io.BytesIO(source), len(source)
    with zipfile.ZipFile(source) as archive:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED or member.file_size > size:
                raise ValueError("a member is compressed, or larger than the file")
    source.seek(0)


def _digest(meta: object, leaves: Sequence[np.ndarray[Any, Any]]) -> str:
    total = blake2b(json.dumps(meta, sort_keys=True).encode(), digest_size=16)
    for leaf in leaves:
        digest_array(total, leaf)
    return total.hexdigest()

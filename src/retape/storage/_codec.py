"""Capsules to bytes and back: trees of NumPy arrays in the `.npz` format.

The only module of the library below the engines that needs NumPy, which it loads when
it is first used. A file holds the arrays, and one member `tree` with a JSON text: the
shape of the tree, its plain Python leaves, what the file is, and a BLAKE2 digest of all
of it. `numpy.load` opens it; nothing is pickled.
"""

# The trees are of any shape, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import importlib
import io
import json
import zipfile
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from .._errors import SnapshotError, StoreError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

FORMAT = "retape-1"


def encode(value: object, label: dict[str, object]) -> bytes:
    """The bytes of a file that holds `value`, and says what it is in `label`."""
    import numpy as np

    arrays: list[np.ndarray[Any, Any]] = []
    tree = _strip(value, arrays)
    meta = {"format": FORMAT, "label": label, "tree": tree}
    meta["digest"] = _digest(meta, arrays)
    text = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    out = io.BytesIO()
    members = {f"array{i}": array for i, array in enumerate(arrays)}
    np.savez(out, allow_pickle=False, tree=text, **members)
    return out.getvalue()


def decode(data: bytes, name: str) -> tuple[Any, dict[str, Any]]:
    """The value and the label in the bytes of a file.

    Raises:
        SnapshotError: If the file is truncated, altered or of another make.
    """
    import numpy as np

    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as members:
            meta = json.loads(members["tree"].tobytes())
            count = len(members.files) - 1
            arrays = [members[f"array{i}"] for i in range(count)]
        if meta["format"] != FORMAT:
            raise ValueError(f"its format is {meta['format']!r}")
        digest = meta.pop("digest")
    except _UNREADABLE as error:
        raise SnapshotError(
            f"`{name}` is not a snapshot of this library, or is damaged: {error}. "
            "Remove the file; its state is recomputed."
        ) from error
    if digest != _digest(meta, arrays):
        raise SnapshotError(
            f"`{name}` is damaged: its contents do not match their checksum. Remove "
            "the file; its state is recomputed."
        )
    return _build(meta["tree"], arrays), meta["label"]


def read_label(file: Path) -> dict[str, Any]:
    """The label of a file, its arrays left unread; nothing if it cannot be read."""
    import numpy as np

    try:
        with file.open("rb") as source, np.load(source) as members:
            return json.loads(members["tree"].tobytes())["label"]
    except _UNREADABLE:
        return {}


def fingerprint(value: object) -> bytes:
    """A digest of a tree of arrays, equal for equal bits."""
    arrays: list[np.ndarray[Any, Any]] = []
    tree = _strip(value, arrays)
    return bytes.fromhex(_digest({"tree": tree}, arrays))


def tree_nbytes(value: object) -> int:
    """The bytes of the arrays in a tree, and 8 or 16 for each other leaf."""
    arrays: list[np.ndarray[Any, Any]] = []
    tree = _strip(value, arrays)
    text = json.dumps(tree)
    leaves = 8 * text.count('"v"') + 16 * text.count('"c"')
    return sum(array.nbytes for array in arrays) + leaves


def copy_tree(value: Any) -> Any:
    """The same tree with copies of its arrays."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) in (tuple, list):
        return type(value)(copy_tree(item) for item in value)
    if type(value) is dict:
        return {key: copy_tree(item) for key, item in value.items()}
    return value


def freeze(value: Any) -> None:
    """Make the arrays in a tree read-only."""
    import numpy as np

    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    elif type(value) in (tuple, list):
        for item in value:
            freeze(item)
    elif type(value) is dict:
        for item in value.values():
            freeze(item)


_UNREADABLE = (
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
)


def _strip(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    """Replace the arrays in a tree by their places in `arrays`."""
    import numpy as np

    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise StoreError(
                f"an array of dtype `{array.dtype}` cannot be in a state: its elements "
                "are Python objects. Use an array of numbers."
            )
        leaf: dict[str, Any] = {"a": len(arrays), "s": isinstance(value, np.generic)}
        if array.dtype.isbuiltin == 2:
            # A type that another package has registered, such as bfloat16: NumPy's
            # format would forget which.
            leaf["t"] = array.dtype.name
            array = array.view(f"V{array.dtype.itemsize}")
        arrays.append(array)
        return leaf
    if value is None or isinstance(value, bool | int | float | str):
        return {"v": value}
    if isinstance(value, complex):
        return {"c": [value.real, value.imag]}
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        kind = "t" if isinstance(value, tuple) else "l"
        return {kind: [_strip(item, arrays) for item in value]}
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return {"d": {key: _strip(item, arrays) for key, item in value.items()}}
    raise StoreError(
        f"a value of type `{type(value).__name__}` cannot be in a state. A state, a "
        "cotangent or a tape may consist of NumPy arrays, numbers, strings, tuples, "
        "lists and dictionaries with string keys."
    )


def _build(tree: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if "a" in tree:
        array = arrays[tree["a"]]
        if "t" in tree:
            array = array.view(_registered(tree["t"]))
        return array[()] if tree["s"] else array
    if "t" in tree:
        return tuple(_build(item, arrays) for item in tree["t"])
    if "c" in tree:
        return complex(*tree["c"])
    if "l" in tree:
        return [_build(item, arrays) for item in tree["l"]]
    if "d" in tree:
        return {key: _build(item, arrays) for key, item in tree["d"].items()}
    return tree["v"]


def _registered(name: str) -> np.dtype[Any]:
    """A number type by its name; those of `ml_dtypes` exist once that is loaded."""
    import numpy as np

    try:
        return np.dtype(name)
    except TypeError:
        importlib.import_module("ml_dtypes")
        return np.dtype(name)


def _digest(meta: object, arrays: list[np.ndarray[Any, Any]]) -> str:
    import numpy as np

    total = blake2b(json.dumps(meta, sort_keys=True).encode(), digest_size=16)
    for array in arrays:
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return total.hexdigest()

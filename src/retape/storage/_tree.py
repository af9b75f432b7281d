"""Trees of arrays: copied, measured, digested, and taken apart for files.

A state, a cotangent and a tape are such trees: arrays and plain Python values in the
containers and classes of `_kinds`. Nothing here needs NumPy unless a value is an array;
a process that has not imported it has none.
"""

# The trees are of any shape, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import json
import sys
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from retape._errors import SnapshotError, StoreError
from retape.storage._arrays import (
    copy_array,
    copy_arrays,
    digest_array,
    into_regions,
    is_plain,
    overlap,
    refuse_objects,
    span,
)
from retape.storage._kinds import (
    ARRAY_SUBCLASSES,
    builder,
    class_called,
    class_name,
    opaque,
    take_apart,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np

    Array = np.ndarray[Any, Any]


_PLAIN = frozenset({type(None), bool, int, float, str, complex})
"""Values that cannot be changed. A subclass, such as an `Enum`, is none of them."""


def copy_tree(value: Any) -> Any:
    """An equal tree that shares no memory with `value`.

    Arrays keep their strides, and those that overlap one another still do.

    Raises:
        StoreError: If there is something in it of which no copy can be made.

    Examples:
        >>> import numpy as np
        >>> x = {"field": np.zeros(2)}
        >>> copy_tree(x)["field"] is x["field"]
        False
    """
    if type(value) is float or value is None:
        return value
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return map_arrays(value, None, copy_others=True)
    if type(value) is numpy.ndarray:
        return copy_array(value)
    copies = iter(copy_arrays(list(arrays_of(value))))
    return map_arrays(value, lambda _: next(copies), copy_others=True)


def map_arrays(
    value: Any, change: Callable[[Array], Array] | None, *, copy_others: bool = False
) -> Any:
    """The same tree with other arrays, and with copies of opaque objects if asked."""
    if type(value) in _PLAIN:
        return value
    if _is_array(value):
        return value if change is None else change(value)
    own = opaque(type(value))
    if own is not None:
        return own.copy(value) if copy_others else value
    node = _node(value)
    if node is None:
        return value.copy() if copy_others else value
    parts = [map_arrays(part, change, copy_others=copy_others) for part in node.parts]
    return node.build(parts)


def read_only(value: Any) -> Any:
    """The same tree with read-only views of its arrays, which stay as they are.

    Examples:
        >>> import numpy as np
        >>> x = np.zeros(2)
        >>> read_only((1, [x]))[1][0].flags.writeable, x.flags.writeable
        (False, True)
    """

    def view(array: Array) -> Array:
        made = array.view()
        made.flags.writeable = False
        return made

    return map_arrays(value, view)


def add_trees(one: Any, other: Any) -> Any:
    """The sum of two trees of one shape, leaf by leaf, as with cotangents.

    Raises:
        StoreError: If they differ in shape.

    Examples:
        >>> add_trees({"x": 1.0, "y": (2, 3.0)}, {"x": 0.5, "y": (1, 1.0)})
        {'x': 1.5, 'y': (3, 4.0)}
    """
    if one is None and other is None:
        return None
    left = None if opaque(type(one)) else take_apart(one)
    if left is None or left.tag in "mxrf":
        return one + other
    right = take_apart(other)
    if (
        right is None
        or (left.tag, left.note) != (right.tag, right.note)
        or len(left.parts) != len(right.parts)
    ):
        raise StoreError(
            f"a `{type(one).__name__}` and a `{type(other).__name__}` cannot be added: "
            "they are cotangents of one state and differ in shape. Return the same "
            "tree from `seed`, `reverse_step` and `cost_gradient`."
        )
    pairs = zip(left.parts, right.parts, strict=True)
    return left.build([add_trees(a, b) for a, b in pairs])


def arrays_of(value: Any) -> Iterator[Array]:
    """The arrays in a tree; those inside opaque objects are not looked at."""
    if type(value) in _PLAIN or opaque(type(value)) is not None:
        return
    if _is_array(value):
        yield value
        return
    node = _node(value)
    for part in node.parts if node else ():
        yield from arrays_of(part)


def fingerprint(value: object) -> bytes:
    """A digest of a tree: equal for equal values, whatever their memory layout.

    Args:
        value: A tree of arrays, plain values and what `register_state` knows.

    Returns:
        16 bytes.

    Raises:
        StoreError: If something in the tree is none of these.

    Examples:
        >>> fingerprint((1, 0.5)) == fingerprint((1, 0.5))
        True
        >>> fingerprint(0.0) == fingerprint(-0.0)
        False
    """
    parts = strip(value)
    total = blake2b(json.dumps(_without_layout(parts.tree)).encode(), digest_size=16)
    for leaf in parts.leaves:
        digest_array(total, leaf)
    return total.digest()


def tree_nbytes(value: Any) -> int:
    """The bytes that a copy of a tree takes, with 8 or 16 for each other leaf.

    Args:
        value: A tree of arrays, plain values and what `register_state` knows.

    Raises:
        StoreError: If something in the tree is none of these.

    Examples:
        >>> tree_nbytes((1, 0.5, 2j))
        32
    """
    if _is_array(value):
        return _nbytes(value)
    if type(value) in _PLAIN:
        return 16 if isinstance(value, complex) else 8
    own = opaque(type(value))
    if own is not None:
        return int(own.nbytes(value))
    node = _node(value)
    if node is None:
        return value.nbytes  # A number of NumPy's.
    return sum(tree_nbytes(part) for part in node.parts)


class Stripped(NamedTuple):
    """A tree in the two parts that a file holds.

    Attributes:
        tree: The shape of the tree and its plain leaves, as JSON.
        leaves: Its arrays, in order.
        stored: What of them a file holds: arrays, and regions of bytes.
    """

    tree: Any
    leaves: list[Array]
    stored: list[Array]


def strip(value: object) -> Stripped:
    """Take a tree apart for a file or a digest.

    Raises:
        StoreError: If there is something in it that cannot be written.
    """
    leaves: list[Array] = []
    try:
        tree = _strip(value, leaves)
    except RecursionError as error:
        raise StoreError(
            f"a `{type(value).__name__}` contains itself, or nests too deeply for a "
            "state. Pass a tree of arrays."
        ) from error
    return Stripped(tree, leaves, leaves)


def lay_out(parts: Stripped) -> Stripped:
    """Say in the tree where each array lies in memory, if a file would forget it."""
    leaves = parts.leaves
    if all(map(is_plain, leaves)) and not overlap(leaves):
        return parts
    regions, views = into_regions(leaves)
    layouts = [
        {"r": view.region, "o": view.offset, "n": leaf.shape, "s": leaf.strides}
        | {"d": _dtype_to_json(leaf.dtype)}
        for leaf, view in zip(leaves, views, strict=True)
    ]
    return Stripped({"layout": layouts, "tree": parts.tree}, leaves, regions)


def unstrip(tree: Any, stored: Sequence[Array]) -> tuple[Any, list[Array]]:
    """The value, and its arrays in order, from what a file holds."""
    leaves = list(stored)
    if isinstance(tree, dict) and "layout" in tree:
        leaves = [_laid_out(layout, stored) for layout in tree["layout"]]
        tree = tree["tree"]
    return _build(tree, leaves), leaves


def _laid_out(layout: dict[str, Any], stored: Sequence[Array]) -> Array:
    import numpy as np

    region, dtype = stored[layout["r"]], _dtype_from_json(layout["d"])
    if region.dtype != np.uint8 or dtype.hasobject:
        raise ValueError("a region is not of bytes")
    return np.ndarray(
        tuple(layout["n"]), dtype, region, layout["o"], tuple(layout["s"])
    )  # pyright: ignore


def _strip(value: Any, arrays: list[Array]) -> Any:
    """Replace the arrays in a tree by their places in `arrays`."""
    if _is_array(value) or _is_scalar(value):
        return _strip_array(value, arrays)
    if type(value) is complex:
        return {"c": [value.real, value.imag]}
    if type(value) in _PLAIN:
        return {"v": value}
    own = opaque(type(value))
    if own is not None:
        name, contents = class_name(type(value)), _strip(own.to_arrays(value), arrays)
        return {"k": name, "p": [contents]}
    node = _node(value)
    assert node is not None
    parts = [_strip(part, arrays) for part in node.parts]
    if node.tag in ("t", "l"):
        return {node.tag: parts}
    if node.tag == "d":
        if not all(isinstance(key, str) for key in node.note):
            raise _cannot(value)
        return {"d": dict(zip(node.note, parts, strict=True))}
    named = {"k": class_name(type(value))} if node.tag in "no" else {}
    return {"p": parts, "g": node.tag, "e": node.note, **named}


def _strip_array(value: Any, arrays: list[Array]) -> Any:
    import numpy as np

    array = np.asarray(value)
    if array.dtype.hasobject:
        refuse_objects(array)
    leaf: dict[str, Any] = {"a": len(arrays), "s": isinstance(value, np.generic)}
    if array.dtype.isbuiltin == 2:
        # A type that another package has registered, such as bfloat16: NumPy's
        # format would forget which.
        leaf["t"] = array.dtype.name
        array = array.view(f"V{array.dtype.itemsize}")
    arrays.append(array)
    return leaf


def _build(tree: Any, arrays: Sequence[Array]) -> Any:
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
    if "p" in tree:
        return _build_node(tree, [_build(item, arrays) for item in tree["p"]])
    return tree["v"]


def _build_node(tree: Any, parts: list[Any]) -> Any:
    """A value of a class: one of NumPy's, or one that is looked up by its name."""
    tag = tree.get("g", "")
    if tag == "m":
        return builder(tag, None, object)(parts)
    if tag in ARRAY_SUBCLASSES:
        import numpy as np

        return builder(tag, None, getattr(np, ARRAY_SUBCLASSES[tag]))(parts)
    kind = class_called(tree["k"])
    if tag:
        return builder(tag, tree["e"], kind)(parts)
    own = opaque(kind)
    if own is None:
        raise SnapshotError(
            f"the class `{tree['k']}` is not registered any more. Call "
            "`retape.register_state` before the run."
        )
    return own.from_arrays(parts[0])


def _node(value: Any) -> Any:
    """A container; `None` for a number of NumPy's; all else is refused."""
    node = take_apart(value)
    if node is None and not _is_scalar(value):
        raise _cannot(value)
    return node


def _cannot(value: object) -> StoreError:
    kind = type(value)
    if kind is dict:
        return StoreError(
            "a value of type `dict` cannot be in a state that is written, unless its "
            "keys are strings. Use strings."
        )
    return StoreError(
        f"a value of type `{kind.__name__}` cannot be in a state. A state, a "
        "cotangent or a tape may consist of NumPy arrays, numbers, strings, tuples, "
        "lists, dictionaries with string keys and dataclasses. Give a class of your "
        "own the methods `copy`, `nbytes`, `to_arrays` and `from_arrays`; for one that "
        "is not your own see `retape.register_state`."
    )


def _is_array(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray


def _is_scalar(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def _nbytes(array: Array) -> int:
    if is_plain(array):
        return array.nbytes
    low, high = span(array)
    return high - low


def _without_layout(tree: Any) -> Any:
    return tree["tree"] if isinstance(tree, dict) and "layout" in tree else tree


def _dtype_to_json(dtype: np.dtype[Any]) -> Any:
    import numpy as np

    return np.lib.format.dtype_to_descr(dtype)


def _dtype_from_json(described: Any) -> np.dtype[Any]:
    import numpy as np

    return np.lib.format.descr_to_dtype(_tuples(described))


def _tuples(described: Any) -> Any:
    """JSON has made lists of the tuples in a description of a structured type."""
    if not isinstance(described, list):
        return described
    return [
        tuple(_tuples(part) if i == 1 else _shape(part) for i, part in enumerate(field))
        for field in described
    ]


def _shape(part: Any) -> Any:
    return tuple(part) if isinstance(part, list) else part


def _registered(name: str) -> np.dtype[Any]:
    """A number type by its name; those of `ml_dtypes` exist once that is loaded."""
    import importlib

    import numpy as np

    try:
        return np.dtype(name)
    except TypeError:
        importlib.import_module("ml_dtypes")
        return np.dtype(name)


def map_leaves(change: Callable[..., Any], first: Any, *others: Any) -> Any:
    """The first of trees of one shape with its numbers changed, those with a fraction.

    Args:
        change: From an array or number of the first tree, and those in its place in the
            others, to the new one.
        first: A tree.
        *others: Trees of the same shape.

    Examples:
        >>> map_leaves(lambda x, y: x + y, (1.5, [2, "a"]), (1.0, [2, "a"]))
        (2.5, [2, 'a'])
    """
    if type(first) in _PLAIN:
        return change(first, *others) if type(first) in (float, complex) else first
    if _is_array(first) or _is_scalar(first):
        return change(first, *others) if first.dtype.kind in "fc" else first
    own = opaque(type(first))
    if own is not None:
        contents = [own.to_arrays(tree) for tree in (first, *others)]
        return own.from_arrays(map_leaves(change, *contents))
    node = _node(first)
    rest = [_node(tree).parts for tree in others]
    if any(len(parts) != len(node.parts) for parts in rest):
        raise StoreError(
            f"trees of {len(node.parts)} and {[len(p) for p in rest]} parts differ in "
            "shape. Pass trees of one shape."
        )
    count = 1 if node.tag == "m" else len(node.parts)  # A mask is none of the numbers.
    changed = [
        map_leaves(change, part, *(parts[i] for parts in rest))
        for i, part in enumerate(node.parts[:count])
    ]
    return node.build([*changed, *node.parts[count:]])


def precision(value: Any) -> float:
    """The machine precision of the coarsest numbers in a tree.

    Examples:
        >>> precision((1, 0.5))
        2.220446049250313e-16
    """
    found = 2.0**-52

    def look(leaf: Any) -> Any:
        nonlocal found
        if hasattr(leaf, "dtype"):
            import numpy as np

            found = max(found, float(np.finfo(leaf.dtype).eps))
        return leaf

    map_leaves(look, value)
    return found

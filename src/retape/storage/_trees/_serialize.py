"""A tree as JSON and arrays: what a file holds, and what a digest is taken of.

`strip` takes the arrays out, `lay_out` adds where each lies in memory if a file would
forget it, `unstrip` builds the tree again:

    {"u": view of a, "k": 3}
    ->  {"g": "d", "e": ["u", "k"], "p": [{"a": 0, "s": false}, {"v": 3}]}, [u]

A container is its parts `p`, with the tag `g` and the note `e` of `_kinds.take_apart`
and the class `k` where it has one; `a` is an array (of the framework `f`), `v` a plain
value, `c` a complex number.
"""

# The trees are of any shape, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import importlib
import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from retape._errors import SnapshotError
from retape.storage._trees._arrays import (
    Array,
    digest_array,
    into_regions,
    is_plain,
    overlap,
    refuse_objects,
)
from retape.storage._trees._jax_arrays import (
    digest_jax_array,
    jax_from_array,
    jax_to_array,
)
from retape.storage._trees._kinds import (
    TOLD_BY_TAG,
    builder,
    class_called,
    class_name,
    named_parts,
    opaque,
)
from retape.storage._trees._tensors import (
    is_tensor,
    tensor_from_array,
    tensor_to_array,
)
from retape.storage._trees._tree import (
    PLAIN,
    endless,
    is_array,
    is_number,
    is_of_framework,
    no_state,
    node_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def strip(
    value: object, of_jax: Any = jax_to_array, *, in_order: bool = False
) -> Stripped:
    """Take a tree apart for a file or a digest.

    Args:
        value: The tree.
        of_jax: What stands for an array of JAX's: an array of NumPy's, and a note.
        in_order: Whether dictionaries go in the order of their keys, as for a digest;
            what is built again has the order that it had.

    Raises:
        StoreError: If there is something in it that cannot be written.
    """
    leaves: list[Array] = []
    try:
        tree = _strip(value, leaves, of_jax, in_order)
    except RecursionError as error:
        raise endless(value) from error
    return Stripped(tree, leaves, leaves)


def lay_out(parts: Stripped) -> Stripped:
    """Say in the tree where each array lies in memory, if a file would forget it."""
    leaves = parts.leaves
    if all(map(is_plain, leaves)) and not overlap(leaves):
        return parts
    regions, views = into_regions(leaves)
    layouts = [
        {"r": view.region, "o": view.offset, "n": leaf.shape, "s": leaf.strides}
        | {"d": dtype_to_json(leaf.dtype)}
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


def fingerprint(value: object) -> bytes:
    """A digest of a tree: equal for equal values, whatever their memory layout.

    Neither does the order matter in which the keys of a dictionary were set.

    That of an array of JAX's does not depend on the devices that have it.

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
    parts = strip(value, digest_jax_array, in_order=True)
    total = blake2b(json.dumps(parts.tree).encode(), digest_size=16)
    for leaf in parts.leaves:
        digest_array(total, leaf)
    return total.digest()


def _laid_out(layout: dict[str, Any], stored: Sequence[Array]) -> Array:
    region, dtype = stored[layout["r"]], dtype_from_json(layout["d"])
    if region.dtype != np.uint8 or dtype.hasobject:
        raise ValueError("a region is not of bytes")
    return np.ndarray(
        tuple(layout["n"]), dtype, region, layout["o"], tuple(layout["s"])
    )  # pyright: ignore


def _strip(value: Any, arrays: list[Array], of_jax: Any, in_order: bool) -> Any:
    """Replace the arrays in a tree by their places in `arrays`."""
    if is_array(value) or is_number(value):
        return _strip_array(value, arrays)
    if type(value) is complex:
        return {"c": [value.real, value.imag]}
    if type(value) in PLAIN:
        return {"v": value}
    own = opaque(type(value))
    if own is not None:
        name, contents = class_name(type(value)), own.to_arrays(value)
        return {"k": name, "p": [_strip(contents, arrays, of_jax, in_order)]}
    if is_of_framework(value):
        to_array = tensor_to_array if is_tensor(value) else of_jax
        array, note = to_array(value)
        return _strip_array(array, arrays) | {"f": note}
    node = node_of(value)
    names, values = node.note, node.parts
    if node.tag in ("d", "o"):
        if node.tag == "d" and not all(isinstance(name, str) for name in names):
            raise no_state(value)
        if in_order:
            found = named_parts(node)
            names = sorted(found)
            values = [found[name] for name in names]
    parts = [_strip(part, arrays, of_jax, in_order) for part in values]
    named = {"k": class_name(type(value))} if node.tag in "no" else {}
    return {"p": parts, "g": node.tag, "e": names, **named}


def _strip_array(value: Any, arrays: list[Array]) -> Any:
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
            array = array.view(registered_dtype(tree["t"]))
        if "f" in tree:
            of_tensor = tree["f"][0] == "torch"
            return (tensor_from_array if of_tensor else jax_from_array)(
                array, tree["f"]
            )
        return array[()] if tree["s"] else array
    if "c" in tree:
        return complex(*tree["c"])
    if "p" in tree:
        return _build_node(tree, [_build(item, arrays) for item in tree["p"]])
    return tree["v"]


def _build_node(tree: Any, parts: list[Any]) -> Any:
    """A value of a class that its tag tells, or that is looked up by its name."""
    tag = tree.get("g", "")
    if tag in TOLD_BY_TAG:
        return builder(tag, tree["e"], TOLD_BY_TAG[tag])(parts)
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


# Types of numbers.


def dtype_to_json(dtype: np.dtype[Any]) -> Any:
    """NumPy's own description of a type."""
    return np.lib.format.dtype_to_descr(dtype)


def dtype_from_json(described: Any) -> np.dtype[Any]:
    """The type that was described.

    Raises:
        ValueError: If the description is none.
    """
    return np.lib.format.descr_to_dtype(_tuples(described))


def registered_dtype(name: str) -> np.dtype[Any]:
    """A number type by its name; those of `ml_dtypes` exist once that is loaded."""
    try:
        return np.dtype(name)
    except TypeError:
        importlib.import_module("ml_dtypes")
        return np.dtype(name)


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

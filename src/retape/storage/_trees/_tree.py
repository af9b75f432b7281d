"""Trees of arrays: copied, and measured.

A state, a cotangent and a tape are such trees: arrays and plain Python values in the
containers and classes of `_kinds`.
"""

# The trees are of any shape, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from retape.storage._trees._arrays import Array, copy_array, copy_arrays, is_plain, span
from retape.storage._trees._kinds import opaque
from retape.storage._trees._leaves import PLAIN, is_array, is_leaf, leaves, map_tree
from retape.storage._trees._tensors import (
    check_apart,
    copy_tensors,
    detached,
    is_tensor,
    tensor_nbytes,
)


def copy_tree(value: Any) -> Any:
    """An equal tree that shares no memory with `value`.

    Arrays keep their strides, and those that overlap one another still do. Tensors are
    copied like arrays, without their graph; arrays of JAX stay on their devices.

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
    if type(value) is np.ndarray:
        return copy_array(value)
    found = leaves(value)
    arrays = [leaf for leaf in found if is_array(leaf)]
    tensors = [leaf for leaf in found if is_tensor(leaf)]
    copies, tensor_copies = iter(copy_arrays(arrays)), iter(())
    if tensors:
        check_apart(tensors, arrays)
        tensor_copies = iter(copy_tensors(tensors))

    def copied(leaf: Any) -> Any:
        if type(leaf) in PLAIN:
            return leaf
        if is_array(leaf):
            return next(copies)
        own = opaque(type(leaf))
        if own is not None:
            return own.copy(leaf)
        return next(tensor_copies) if is_tensor(leaf) else leaf.copy()

    return map_tree(copied, value)


def has_tensors(value: Any) -> bool:
    """Tell whether there are tensors in a tree, which may have a graph."""
    return "torch" in sys.modules and any(map(is_tensor, leaves(value)))


def with_graph(value: Any) -> bool:
    """Tell whether a tensor in a tree was made by operations that autograd records."""
    return any(is_tensor(t) and t.grad_fn is not None for t in leaves(value))


def without_graph(value: Any) -> Any:
    """The same tree, its tensors without the graph that led to them.

    Examples:
        >>> without_graph((1, 2.5))
        (1, 2.5)
    """
    return map_tree(lambda leaf: detached(leaf) if is_tensor(leaf) else leaf, value)


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
    # Without the walk, which takes longer, where there is one leaf.
    return _nbytes(value) if is_leaf(value) else sum(map(_nbytes, leaves(value)))


def _nbytes(leaf: Any) -> int:
    if type(leaf) in PLAIN:
        return 16 if isinstance(leaf, complex) else 8
    if is_array(leaf):
        return _array_nbytes(leaf)
    own = opaque(type(leaf))
    if own is not None:
        return int(own.nbytes(leaf))
    return tensor_nbytes(leaf) if is_tensor(leaf) else leaf.nbytes


def _array_nbytes(array: Array) -> int:
    if is_plain(array):
        return array.nbytes
    low, high = span(array)
    return high - low

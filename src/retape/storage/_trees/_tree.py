"""Trees of arrays: copied, and measured.

A state, a cotangent and a tape are such trees: arrays and plain Python values in the
containers and classes of `_kinds`.
"""

# The trees are of any shape, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from retape.storage._trees._arrays import copy_array, copy_arrays, is_plain, span
from retape.storage._trees._kinds import opaque
from retape.storage._trees._leaves import PLAIN, endless, is_array, memory_of, node_of
from retape.storage._trees._tensors import (
    check_apart,
    copy_tensors,
    detached,
    is_tensor,
    tensor_nbytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    Array = np.ndarray[Any, Any]


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
    numpy = sys.modules.get("numpy")
    if numpy is not None and type(value) is numpy.ndarray:
        return copy_array(value)
    memory = list(memory_of(value))
    arrays = [part for part in memory if is_array(part)]
    copies = iter(copy_arrays(arrays))
    if len(arrays) == len(memory):
        return map_arrays(value, lambda _: next(copies), copy_others=True)
    tensors = [part for part in memory if is_tensor(part)]
    check_apart(tensors, arrays)
    tensor_copies = iter(copy_tensors(tensors))
    return map_arrays(
        value,
        lambda _: next(copies),
        copy_others=True,
        change_tensor=lambda _: next(tensor_copies),
    )


def map_arrays(
    value: Any,
    change: Callable[[Array], Array] | None,
    *,
    copy_others: bool = False,
    change_tensor: Callable[[Any], Any] | None = None,
) -> Any:
    """The same tree with other arrays, and with copies of opaque objects if asked."""
    if type(value) in PLAIN:
        return value
    if is_array(value):
        return value if change is None else change(value)
    own = opaque(type(value))
    if own is not None:
        return own.copy(value) if copy_others else value
    if is_tensor(value):
        return value if change_tensor is None else change_tensor(value)
    node = node_of(value)
    if node is None:  # A number of NumPy's, or an array of JAX's.
        return value.copy() if copy_others else value
    parts = [
        map_arrays(part, change, copy_others=copy_others, change_tensor=change_tensor)
        for part in node.parts
    ]
    return node.build(parts)


def has_tensors(value: Any) -> bool:
    """Tell whether there are tensors in a tree, which may have a graph."""
    return "torch" in sys.modules and any(map(is_tensor, memory_of(value)))


def with_graph(value: Any) -> bool:
    """Tell whether a tensor in a tree was made by operations that autograd records."""
    return any(is_tensor(t) and t.grad_fn is not None for t in memory_of(value))


def without_graph(value: Any) -> Any:
    """The same tree, its tensors without the graph that led to them.

    Examples:
        >>> without_graph((1, 2.5))
        (1, 2.5)
    """
    return map_arrays(value, None, change_tensor=detached)


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
    try:
        return _nbytes(value)
    except RecursionError as error:
        raise endless(value) from error


def _nbytes(value: Any) -> int:
    if is_array(value):
        return _array_nbytes(value)
    if type(value) in PLAIN:
        return 16 if isinstance(value, complex) else 8
    own = opaque(type(value))
    if own is not None:
        return int(own.nbytes(value))
    if is_tensor(value):
        return tensor_nbytes(value)
    node = node_of(value)
    if node is None:
        return value.nbytes  # A number of NumPy's, or an array of JAX's.
    return sum(_nbytes(part) for part in node.parts)


def _array_nbytes(array: Array) -> int:
    if is_plain(array):
        return array.nbytes
    low, high = span(array)
    return high - low

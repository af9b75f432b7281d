"""Trees of arrays: copied, measured, and seen as read-only.

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
from retape.storage._trees._leaves import PLAIN, arrays_of, is_array, node_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    Array = np.ndarray[Any, Any]


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
    if type(value) in PLAIN:
        return value
    if is_array(value):
        return value if change is None else change(value)
    own = opaque(type(value))
    if own is not None:
        return own.copy(value) if copy_others else value
    node = node_of(value)
    if node is None:
        return value.copy() if copy_others else value
    parts = [map_arrays(part, change, copy_others=copy_others) for part in node.parts]
    return node.build(parts)


def read_only(value: Any) -> Any:
    """The same tree with read-only views of its arrays, which stay as they are.

    Raises:
        StoreError: If something in the tree is none of what a state may consist of.

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
    if is_array(value):
        return _array_nbytes(value)
    if type(value) in PLAIN:
        return 16 if isinstance(value, complex) else 8
    own = opaque(type(value))
    if own is not None:
        return int(own.nbytes(value))
    node = node_of(value)
    if node is None:
        return value.nbytes  # A number of NumPy's.
    return sum(tree_nbytes(part) for part in node.parts)


def _array_nbytes(array: Array) -> int:
    if is_plain(array):
        return array.nbytes
    low, high = span(array)
    return high - low

"""Trees of arrays: walked, copied, and measured.

A state, a cotangent and a tape are such trees: arrays and plain Python values in the
containers and classes of `_kinds`. A leaf has no parts; what is neither a leaf nor a
container is refused.
"""

# The trees are of any shape, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from retape._errors import StoreError
from retape.storage._trees._arrays import Array, copy_array, copy_arrays, is_plain, span
from retape.storage._trees._jax_arrays import is_jax_array, is_traced
from retape.storage._trees._kinds import LEAVES, Node, opaque, take_apart
from retape.storage._trees._tensors import (
    check_apart,
    copy_tensor,
    detached,
    is_tensor,
    tensor_nbytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable


PLAIN = frozenset({type(None), bool, int, float, str, complex})
"""Values that cannot be changed. A subclass, such as an `Enum`, is none of them."""


def is_array(value: object) -> bool:
    """Tell whether a value is an array of NumPy's, and of no subclass."""
    return type(value) is np.ndarray


def is_number(value: object) -> bool:
    """Tell whether a value is a number of NumPy's."""
    return isinstance(value, np.generic)


def is_leaf(value: object) -> bool:
    """Tell whether a value has no parts: a number, an array, an opaque object."""
    kind = type(value)
    known = LEAVES.get(kind)
    if known is None:
        is_plain = kind in PLAIN or is_array(value) or is_number(value)
        known = is_plain or opaque(kind) is not None or is_of_framework(value)
        LEAVES[kind] = known
    return known


def node_of(value: Any) -> Node:
    """A container taken apart.

    Raises:
        StoreError: If the value is none, and no leaf either.
    """
    node = take_apart(value)
    if node is None:
        raise no_state(value)
    return node


def leaves(tree: Any) -> list[Any]:
    """The leaves of a tree, in order.

    Raises:
        StoreError: If something in it is none of what a state may consist of, or the
            tree contains itself.
    """
    found: list[Any] = []
    try:
        _collect(tree, found)
    except RecursionError as error:
        raise endless(tree) from error
    return found


def _collect(tree: Any, found: list[Any]) -> None:
    if is_leaf(tree):
        found.append(tree)
        return
    for part in node_of(tree).parts:
        _collect(part, found)


def map_tree(change: Callable[[Any], Any], tree: Any) -> Any:
    """The same containers with other leaves.

    Examples:
        >>> map_tree(str, {"x": (1, 2.5)})
        {'x': ('1', '2.5')}
    """
    if is_leaf(tree):
        return change(tree)
    node = node_of(tree)
    return node.build([map_tree(change, part) for part in node.parts])


def is_of_framework(value: object) -> bool:
    """Tell whether a value is an array of JAX's or a tensor of PyTorch's."""
    return is_tensor(value) or is_jax_array(value)


def endless(value: object) -> StoreError:
    """The refusal of a tree in which Python's recursion comes to no end."""
    return StoreError(
        f"a `{type(value).__name__}` contains itself, or nests too deeply for a state. "
        "Pass a tree of arrays."
    )


def no_state(value: object) -> StoreError:
    """The refusal of a value that no state may contain."""
    kind = type(value)
    if is_traced(value):
        return StoreError(
            "an array that JAX traces cannot be in a state: `retape.adjoint` runs "
            "step by step, and is no part of a traced function. Call it outside of "
            "`jax.jit`, `jax.grad` and the like; gradients of traced functions are "
            "those of `retape.jax`."
        )
    if kind is dict:
        return StoreError(
            "a value of type `dict` cannot be in a state that is written, unless its "
            "keys are strings. Use strings."
        )
    return StoreError(
        f"a value of type `{kind.__name__}` cannot be in a state. A state, a "
        "cotangent or a tape may consist of arrays of NumPy and JAX, tensors of "
        "PyTorch, numbers, strings, tuples, lists, dictionaries with string keys and "
        "dataclasses. Give a class of your own the methods `copy`, `nbytes`, "
        "`to_arrays` and `from_arrays`; for one that is not your own see "
        "`retape.register_state`."
    )


def copy_tree(value: Any) -> Any:
    """An equal tree that shares no memory with `value`.

    Arrays keep their strides, and those that overlap one another still do. Tensors are
    copied with theirs, without their graph; arrays of JAX stay on their devices.

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
    copies = iter(copy_arrays(arrays))
    if tensors:
        check_apart(tensors, arrays)

    def copied(leaf: Any) -> Any:
        if type(leaf) in PLAIN:
            return leaf
        if is_array(leaf):
            return next(copies)
        own = opaque(type(leaf))
        if own is not None:
            return own.copy(leaf)
        return copy_tensor(leaf) if is_tensor(leaf) else leaf.copy()

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

"""The numbers in trees of one shape: added, changed leaf by leaf, their precision.

These are what a cotangent needs. Arrays of a class of the user's own are reached
through its `to_arrays`.
"""

# The trees are of any shape, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from retape._errors import StoreError
from retape.storage._trees._jax_arrays import is_jax_array
from retape.storage._trees._kinds import opaque, parts_like, take_apart
from retape.storage._trees._tensors import (
    as_numbers,
    is_tensor,
    with_numbers,
)
from retape.storage._trees._tree import (
    PLAIN,
    is_array,
    is_number,
    leaves,
    node_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable


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
    if left is None:
        return one + other
    right = parts_like(left, take_apart(other))
    if right is None:
        raise StoreError(
            f"a `{type(one).__name__}` and a `{type(other).__name__}` cannot be added: "
            "they are cotangents of one state and differ in shape. Return the same "
            "tree from `seed`, `reverse_step` and `cost_gradient`."
        )
    pairs = zip(left.parts, right, strict=True)
    return left.build([add_trees(a, b) for a, b in pairs])


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
    if type(first) in PLAIN:
        return change(first, *others) if type(first) in (float, complex) else first
    if is_array(first) or is_number(first):
        return _changed(change, first, *others)
    own = opaque(type(first))
    if own is not None:
        contents = [own.to_arrays(tree) for tree in (first, *others)]
        return own.from_arrays(map_leaves(change, *contents))
    if is_tensor(first):
        if not epsilon_of(first.dtype):
            return first
        made = change(*map(as_numbers, (first, *others)))
        return with_numbers(made, first)
    if is_jax_array(first):
        return _changed(change, first, *others)
    node = node_of(first)
    rest: list[Any] = [parts_like(node, take_apart(tree)) for tree in others]
    if any(parts is None for parts in rest):
        kinds = "` and a `".join(type(tree).__name__ for tree in others)
        raise StoreError(
            f"a `{type(first).__name__}` and a `{kinds}` differ in their parts. Pass "
            "trees of one shape, with the same keys."
        )
    pairs = zip(node.parts, *rest, strict=True)
    return node.build([map_leaves(change, *parts) for parts in pairs])


def _changed(change: Callable[..., Any], first: Any, *others: Any) -> Any:
    """An array with its numbers changed, if they have fractions."""
    if first.dtype.kind in "fc":
        return change(first, *others)
    if not _is_small_float(first.dtype):
        return first
    # Numbers of a few bits, such as bfloat16, in single precision meanwhile.
    wider = [array.astype("float32") for array in (first, *others)]
    return change(*wider).astype(first.dtype)


def _is_small_float(dtype: Any) -> bool:
    """Whether a type that NumPy has not itself, such as bfloat16, has fractions."""
    small: Any = sys.modules.get("ml_dtypes")
    try:
        return (
            dtype.kind == "V" and small is not None and small.finfo(dtype) is not None
        )
    except (ValueError, TypeError):
        return False


def precision(value: Any) -> float:
    """The machine precision of the coarsest numbers in a tree.

    Examples:
        >>> precision((1, 0.5))
        2.220446049250313e-16
    """
    return max(_DOUBLE, *map(_epsilon, leaves(value)), _DOUBLE)


def _epsilon(leaf: Any) -> float:
    own = opaque(type(leaf))
    if own is not None:
        return precision(own.to_arrays(leaf))
    return 0.0 if type(leaf) in PLAIN else epsilon_of(leaf.dtype)


_DOUBLE = 2.0**-52


def epsilon_of(dtype: Any) -> float:
    """The machine precision of a type; 0 of one without fractions.

    Args:
        dtype: Of NumPy, JAX or PyTorch.
    """
    if not hasattr(dtype, "kind"):  # one of PyTorch's
        has = getattr(dtype, "is_floating_point", False)
        has = has or getattr(dtype, "is_complex", False)
        return sys.modules["torch"].finfo(dtype).eps if has else 0.0
    if _is_small_float(dtype):
        return float(sys.modules["ml_dtypes"].finfo(dtype).eps)
    return float(np.finfo(dtype).eps) if dtype.kind in "fc" else 0.0

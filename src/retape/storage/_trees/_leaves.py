"""Leaves and containers told apart, and what is neither refused."""

# The trees are of any shape, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retape._errors import StoreError
from retape.storage._trees._jax_arrays import is_jax_array, is_traced
from retape.storage._trees._kinds import LEAVES, Node, opaque, take_apart
from retape.storage._trees._tensors import is_tensor

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

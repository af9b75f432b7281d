"""The largest number in a tree, and its leaves described for a message."""

# The trees are of any shape, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isfinite
from typing import Any

from retape.storage._trees._arithmetic import epsilon_of
from retape.storage._trees._jax_arrays import is_jax_array
from retape.storage._trees._kinds import opaque
from retape.storage._trees._tensors import as_numbers, is_tensor
from retape.storage._trees._tree import PLAIN, is_array, is_leaf, leaves, node_of


def largest(tree: Any) -> float:
    """The largest magnitude in a tree, of numbers with a fraction.

    Returns:
        0 if there is none, infinity if one is not finite.

    Raises:
        StoreError: If there is something in the tree that no state may have.

    Examples:
        >>> largest({"x": -2.5, "k": 7}), largest([1.0, float("nan")])
        (2.5, inf)
    """
    # Without the walk, which takes longer, where there is one leaf.
    if type(tree) is float or (is_array(tree) and tree.dtype.kind == "f" and tree.size):
        found = _magnitude(tree)
        return found if isfinite(found) else inf
    most = 0.0
    for leaf in _leaves(tree):
        found = _magnitude(leaf)
        if not isfinite(found):
            return inf
        most = max(most, found)
    return most


def is_in_reach(tree: Any) -> bool:
    """Tell whether all of a tree can be read at once, without a wait for a device.

    Examples:
        >>> is_in_reach({"x": (1.0, 2)})
        True
    """
    return all(map(_is_in_reach, leaves(tree)))


def _is_in_reach(leaf: Any) -> bool:
    if is_tensor(leaf):
        return leaf.device.type == "cpu"
    # An array of JAX's may be on its way; an object of the user's makes its arrays.
    return not is_jax_array(leaf) and opaque(type(leaf)) is None


def described(tree: Any) -> str:
    """The types and ranges of a tree's leaves with a fraction.

    Examples:
        >>> described((0.5, "a", [1j]))
        'float = 0.5, complex'
    """
    return ", ".join(map(_described, _leaves(tree)))


def _leaves(tree: Any) -> Iterator[Any]:
    """Numbers, arrays and tensors with a fraction."""
    if type(tree) in PLAIN:
        if type(tree) in (float, complex):
            yield tree
        return
    own = opaque(type(tree))
    if own is not None:
        yield from _leaves(own.to_arrays(tree))
    elif is_leaf(tree):
        if 0 not in tree.shape and epsilon_of(tree.dtype):
            yield tree
    else:
        for part in node_of(tree).parts:
            yield from _leaves(part)


def _magnitude(leaf: Any) -> float:
    if type(leaf) in (float, complex):
        return abs(leaf)
    if is_tensor(leaf):
        if leaf.device.type != "cpu":
            return float(leaf.detach().abs().max())
        leaf = as_numbers(leaf)
    if leaf.dtype.kind == "c":
        return float(abs(leaf).max())
    # A pass each, and no array in between: a NaN comes out of either.
    high, low = float(leaf.max()), float(leaf.min())
    return max(abs(high), abs(low)) if high == high else inf


def _described(leaf: Any) -> str:
    if type(leaf) in (float, complex):
        return "complex" if isinstance(leaf, complex) else f"float = {leaf:.6g}"
    leaf = leaf.detach() if is_tensor(leaf) else leaf
    name = str(leaf.dtype).removeprefix("torch.")
    kind = f"{name}[{','.join(map(str, leaf.shape))}]"
    if "complex" in name:
        return kind
    low, high, zeros = float(leaf.min()), float(leaf.max()), int((leaf == 0).sum())
    if not leaf.shape:
        return f"{kind} = {low:.6g}"
    said = f"{kind} from {low:.6g} to {high:.6g}"
    return f"{said}, {zeros} of them 0" if zeros else said

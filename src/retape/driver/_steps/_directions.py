"""Random directions of trees, and products with them: what `check_adjoint` asks with.

A cotangent may have more in it than the state has: what the other parts are multiplied
with is not there, so a product is taken over the parts that the state has.
"""

# The trees are of any shape, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from retape._errors import MachineError
from retape.storage import copy_tree
from retape.storage._trees._arithmetic import map_leaves

if TYPE_CHECKING:
    import numpy as np


def product(one: Any, other: Any) -> float:
    """The sum over all numbers of two trees of Re(conj(a) b).

    Raises:
        MachineError: If arrays in the same place differ in shape.
        StoreError: If the trees differ.
    """
    found = 0.0

    def add(a: Any, b: Any) -> Any:
        nonlocal found
        shapes = getattr(a, "shape", ()), getattr(b, "shape", ())
        if shapes[0] != shapes[1]:
            raise MachineError(
                f"a product of shapes {shapes[0]} and {shapes[1]} cannot be taken: a "
                "cotangent has the shapes of its state, and so has a direction."
            )
        terms = a.conjugate() * b
        found += float((terms.sum() if hasattr(terms, "sum") else terms).real)
        return a

    map_leaves(add, one, other)
    return found


def own_product(cotangent: Any, direction: Any) -> float:
    """The product over the parts of a cotangent that a state has.

    Examples:
        >>> own_product({"x": 2.0, "parameter": 9.0}, {"x": 3.0})
        6.0
    """
    return product(own_part(cotangent, direction), direction)


def own_part(cotangent: Any, state: Any) -> Any:
    """A cotangent without what accumulates in it beside that of the state."""
    kind = type(state)
    if kind is dict and type(cotangent) is dict:
        found = cast("dict[Any, Any]", cotangent)
        parts = cast("dict[Any, Any]", state)
        return {
            name: own_part(found[name], part)
            for name, part in parts.items()
            if name in found
        }
    if kind in (tuple, list) and type(cotangent) in (tuple, list):
        return kind(map(own_part, cotangent, state))
    return cotangent


def embedded(own: Any, like: Any) -> Any:
    """A cotangent of the state in the form of one that has more: the rest is zero.

    Examples:
        >>> embedded({"x": 2.0}, {"parameter": 9.0, "x": 1.0})
        {'parameter': 0.0, 'x': 2.0}
    """
    if type(own) is dict and type(like) is dict:
        found = cast("dict[Any, Any]", own)
        parts = cast("dict[Any, Any]", like)
        return {
            name: embedded(found[name], part) if name in found else _zero(part)
            for name, part in parts.items()
        }
    if type(own) in (tuple, list) and type(like) in (tuple, list):
        items: list[Any] = list(cast("Any", own))
        rest: list[Any] = list(cast("Any", like))
        inner = [*map(embedded, items, rest), *map(_zero, rest[len(items) :])]
        return type(cast("Any", like))(inner)
    return own


def _zero(tree: Any) -> Any:
    def times_zero(a: Any) -> Any:
        return 0 * a

    return map_leaves(times_zero, tree)


def moved(x: Any, v: Any, h: float) -> Any:
    """x + h v."""

    def move(a: Any, b: Any) -> Any:
        return a + h * b

    return map_leaves(move, copy_tree(x), v)


def slope(h: float) -> Callable[[Any, Any], Any]:
    """The central difference of two numbers or arrays at a distance of 2h."""

    def difference(ahead: Any, behind: Any) -> Any:
        return (ahead - behind) / (2 * h)

    return difference


def direction(like: Any, rng: np.random.Generator) -> Any:
    """Normal numbers in the place of those of a tree, of about their size."""

    def drawn(a: Any) -> Any:
        made = rng.standard_normal(getattr(a, "shape", None)) * (1 + abs(a))
        kind: Any = getattr(a, "dtype", None)
        if kind is None:
            return complex(made, 0.5 * made) if type(a) is complex else float(made)
        return (made * (1 + 0.5j) if kind.kind == "c" else made).astype(kind)

    return map_leaves(drawn, like)

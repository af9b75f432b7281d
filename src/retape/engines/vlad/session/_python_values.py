"""Values in Python's terms: what programs are given, and what they give back."""

from typing import Any

from retape.engines.vlad.language._program import deep_recursion
from retape.engines.vlad.values._values import Closure, Shown, Value
from retape.engines.vlad.values._versioned_arrays import Version, vector


class Vector(tuple[Any, ...]):
    """A vector of the language, in Python: a tuple of its elements.

    Examples:
        >>> from retape import vlad
        >>> module = vlad.compile(
        ...     "(define (f v) (* (vector-ref v 0) (vector-ref v 1)))",
        ...     engine="interpreter",
        ... )
        >>> module["f"].grad(vlad.Vector([3, 5]))
        Vector([5.0, 3.0])
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Vector({list(self)!r})"


def to_python(value: Value) -> Any:
    """A value as Python has it: a proper list is a list, another pair a tuple.

    A vector is a `Vector`.

    Examples:
        >>> to_python((1.0, (2.0, ()))), to_python((1.0, 2.0))
        ([1.0, 2.0], (1.0, 2.0))
    """
    with deep_recursion(10_000_000):
        return _to_python(value)


def _to_python(value: Value) -> Any:
    if type(value) is Closure:
        return Shown(value.code.name)
    if type(value) is Version:
        return Vector(_to_python(item) for item in value.items())
    if type(value) is not tuple:
        return value
    items: list[Any] = []
    while type(value) is tuple and value:
        items.append(_to_python(value[0]))
        value = value[1]
    if type(value) is tuple:
        return items
    return (*items, _to_python(value))


def from_python(value: Any) -> Value:
    """The inverse of `to_python`; any number is a real, an array of numbers a vector.

    Examples:
        >>> from_python([1, (2, 3)])
        (1.0, ((2.0, 3.0), ()))
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, Vector):
        return vector([from_python(item) for item in value])
    if getattr(value, "ndim", None) == 1 and hasattr(value, "tolist"):
        return vector([from_python(item) for item in value.tolist()])
    if isinstance(value, (list, tuple)):
        parts = [from_python(item) for item in value]
        if isinstance(value, tuple) and len(parts) == 1:
            raise TypeError(
                f"`{value!r}` is a tuple of one, which is not a value of the language; "
                "pass a list, or the element"
            )
        tail: Value = parts.pop() if isinstance(value, tuple) and parts else ()
        for part in reversed(parts):
            tail = (part, tail)
        return tail
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(
            f"`{value!r}` of type `{type(value).__name__}` is not a value of "
            "the language; pass numbers, booleans, lists and tuples of them, a "
            "`Vector`, or an array of one dimension"
        ) from None

"""Builtins of vectors, an extension of the paper's language."""

from collections.abc import Callable
from typing import Any

from retape.engines.vlad.operators._table import (
    IS_VECTOR,
    MAKE_VECTOR,
    VECTOR_LENGTH,
    VECTOR_REF,
    VECTOR_SET,
)
from retape.engines.vlad.values._dual_and_taped import is_real, strip
from retape.engines.vlad.values._values import Mismatch, Value, show_atom
from retape.engines.vlad.values._versioned_arrays import Array, Version

MAX_LENGTH = 100_000_000
"""The most elements of a vector."""


def make_vector(length: Value, value: Value) -> Version:
    """`(make-vector n x)`."""
    count = whole_below(length, MAX_LENGTH + 1)
    if count is None:
        raise Mismatch(bad_length(length))
    return Version(Array([value] * count))


def vector_length(v: Value) -> float:
    """`(vector-length v)`."""
    return float(len(vector_items(VECTOR_LENGTH, v)))


def vector_ref(v: Value, index: Value) -> Value:
    """`(vector-ref v i)`."""
    items = vector_items(VECTOR_REF, v)
    return items[_index(VECTOR_REF, items, index)]


def vector_set(v: Value, index: Value, value: Value) -> Version:
    """`(vector-set v i x)`: the vector that has x at i, and else what v has."""
    items = vector_items(VECTOR_SET, v)
    return v.updated(_index(VECTOR_SET, items, index), value)


def vector_items(name: str, v: Value) -> list[Value]:
    """The elements of what an operator needs to be a vector."""
    if type(v) is not Version:
        raise Mismatch(no_vector(name, v))
    return v.items()


def _index(name: str, items: list[Value], index: Value) -> int:
    at = whole_below(index, len(items))
    if at is None:
        raise Mismatch(bad_index(name, index, len(items)))
    return at


def whole_below(value: Value, bound: int) -> int | None:
    """A real as a whole number from 0 to below a bound, if it is one."""
    number = strip("", value) if is_real(value) else -1.0
    return int(number) if 0.0 <= number < bound and number.is_integer() else None


TABLE: dict[str, Callable[..., Any]] = {
    IS_VECTOR: lambda a: type(a) is Version,
    MAKE_VECTOR: make_vector,
    VECTOR_LENGTH: vector_length,
    VECTOR_REF: vector_ref,
    VECTOR_SET: vector_set,
}
"""What each builtin does."""


def no_vector(name: str, value: Value) -> str:
    """The message for an operand that is no vector."""
    return f"`{name}` takes a vector, not `{show_atom(value)}`"


def bad_index(name: str, index: Value, length: int) -> str:
    """The message for an index that a vector does not have."""
    advice = f"pass a whole number from 0 to {length - 1}" if length else "it is empty"
    return (
        f"`{name}`: `{show_atom(index)}` is no index of a vector of {length}; {advice}"
    )


def bad_length(length: Value) -> str:
    """The message for a length that no vector has."""
    return (
        f"`make-vector`: `{show_atom(length)}` is no length; pass a whole number from "
        f"0 to {MAX_LENGTH}"
    )

"""Vectors of the interpreter and the hybrid are versions of arrays.

An update writes in place and makes the next `Version`; what was there goes to the
array's log. The newest version has its elements in the array, at once. An older one
that is looked at is given an array of its own, in which the log's updates are undone: a
vector that nobody else has is never copied, and one that somebody has is copied once,
and only if it is used again. `runtime/arrays.h` does the same. It is the array with a
trail of Baker (1991), but an old version that is read gets a copy, where his becomes
the newest: reverse mode reads old versions in turn with new ones.
"""

from collections.abc import Sequence
from typing import Any

LOG_SLACK = 1024
"""An array is copied after so many updates more than it has elements, which bounds
its log."""


class Array:
    """Elements, and what each of their updates replaced."""

    __slots__ = ("items", "log")

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.log: list[tuple[int, Any]] = []


class Version:
    """A vector: an array after so many of its updates."""

    __slots__ = ("array", "number")

    def __init__(self, array: Array, number: int = 0) -> None:
        self.array = array
        self.number = number

    def items(self) -> list[Any]:
        """The elements, not to be changed."""
        array = self.array
        if len(array.log) != self.number:
            items = list(array.items)
            for index, old in reversed(array.log[self.number :]):
                items[index] = old
            self.array, self.number = Array(items), 0
        return self.array.items

    def __repr__(self) -> str:
        return f"#<vector of {len(self.items())}>"

    def updated(self, index: int, value: Any) -> "Version":
        """The next version: in place, but for a log that has grown too long."""
        items = self.items()
        array = self.array
        if len(array.log) >= len(items) + LOG_SLACK:
            array = Array(list(items))
            items = array.items
        array.log.append((index, items[index]))
        items[index] = value
        return Version(array, len(array.log))


def vector(items: Sequence[Any]) -> Version:
    """A new vector."""
    return Version(Array(list(items)))

"""The kinds of values that a state may consist of, and how each is taken apart.

Containers (tuples, named tuples, lists, dictionaries, dataclasses) are taken apart into
*parts*, and built again from them. A class of the user's own is opaque: it copies and
measures itself, and gives its contents as arrays when it is to be written to disk.
"""

# The values are of any type, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from retape._errors import SnapshotError, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence


T = TypeVar("T")


@runtime_checkable
class State(Protocol):
    """A class of your own whose objects are states: four small methods.

    Examples:
        >>> class Field:
        ...     def __init__(self, values):
        ...         self.values = values
        ...     def copy(self):
        ...         return Field(list(self.values))
        ...     def nbytes(self):
        ...         return 8 * len(self.values)
        ...     def to_arrays(self):
        ...         return self.values
        ...     @classmethod
        ...     def from_arrays(cls, arrays):
        ...         return cls(arrays)
        >>> from retape.storage import copy_tree
        >>> field = Field([1.0, 2.0])
        >>> copy_tree(field).values
        [1.0, 2.0]
    """

    def copy(self) -> Any:
        """An equal object that shares no memory with this one."""
        ...

    def nbytes(self) -> int:
        """The bytes that keeping this object takes."""
        ...

    def to_arrays(self) -> Any:
        """Its contents, as a tree of NumPy arrays and plain Python values."""
        ...

    @classmethod
    def from_arrays(cls, arrays: Any) -> Any:
        """The object with these contents."""
        ...


class Opaque(NamedTuple):
    """Functions that copy, measure, write and read objects of a class."""

    copy: Callable[[Any], Any]
    nbytes: Callable[[Any], int]
    to_arrays: Callable[[Any], Any]
    from_arrays: Callable[[Any], Any]


class Node(NamedTuple):
    """A value taken apart.

    Attributes:
        tag: The kind, as a file names it.
        note: What a file must say besides to build it again, as plain JSON.
        parts: What it consists of.
        build: From such parts to such a value.
    """

    tag: str
    note: Any
    parts: Sequence[Any]
    build: Callable[[Sequence[Any]], Any]


_REGISTERED: dict[type, Opaque] = {}
LEAVES: dict[type, bool] = {}
"""Whether values of a type have no parts, as they are met: `_tree.is_leaf` asks."""


def register_state(
    kind: type[T],
    *,
    copy: Callable[[T], T],
    nbytes: Callable[[T], int],
    to_arrays: Callable[[T], Any],
    from_arrays: Callable[[Any], T],
) -> None:
    """Let states and cotangents consist of objects of a class that is not your own.

    A class of your own may have the four as methods instead.

    Args:
        kind: The class; its subclasses are not registered by this.
        copy: To an equal object that shares no memory with its argument.
        nbytes: The bytes that keeping an object takes.
        to_arrays: The contents as a tree of NumPy arrays and plain values, for files.
        from_arrays: The inverse.

    Raises:
        StoreError: If `kind` is no class.

    Examples:
        >>> import array
        >>> import retape
        >>> retape.register_state(
        ...     array.array,
        ...     copy=lambda a: a[:],
        ...     nbytes=lambda a: a.itemsize * len(a),
        ...     to_arrays=lambda a: (a.typecode, a.tolist()),
        ...     from_arrays=lambda tree: array.array(*tree),
        ... )
        >>> retape.adjoint(
        ...     retape.Program(
        ...         lambda x, k: array.array("d", [2 * v for v in x]),
        ...         lambda x, k, g: array.array("d", [2 * v for v in g]),
        ...     ),
        ...     array.array("d", [1.0]),
        ...     seed=lambda x: array.array("d", [1.0]),
        ...     steps=3,
        ... ).cotangent
        array('d', [8.0])
    """
    if not isinstance(kind, type):
        raise StoreError(
            f"`register_state({kind!r})` is not valid: pass the class whose objects "
            "are states."
        )
    _REGISTERED[kind] = Opaque(copy, nbytes, to_arrays, from_arrays)
    opaque.cache_clear()
    LEAVES.clear()


@cache
def opaque(kind: type) -> Opaque | None:
    """The four functions of a class that has them, registered or as methods.

    Examples:
        >>> opaque(int) is None
        True
    """
    found = _REGISTERED.get(kind)
    if found is None and all(callable(getattr(kind, name, None)) for name in _FOUR):
        found = Opaque(
            lambda value: value.copy(),
            lambda value: value.nbytes(),
            lambda value: value.to_arrays(),
            kind.from_arrays,  # pyright: ignore
        )
    return found


_FOUR = ("copy", "nbytes", "to_arrays", "from_arrays")


def take_apart(value: Any) -> Node | None:
    """A container as its parts; `None` for what is none."""
    kind = type(value)
    if kind is tuple or kind is list:
        return Node("t" if kind is tuple else "l", None, value, kind)
    if kind is dict:
        keys = list(value)
        return _node("d", keys, list(value.values()), kind)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return _node("n", None, value, kind)
    if is_dataclass(value) and opaque(kind) is None:
        names = _attributes(value)
        return _node("o", names, [getattr(value, name) for name in names], kind)
    return None


def named_parts(node: Node) -> dict[Any, Any]:
    """The parts of a container by their names, or by their places if it has none."""
    names = node.note if node.tag in ("d", "o") else range(len(node.parts))
    return dict(zip(names, node.parts, strict=True))


def parts_like(first: Node, other: Node | None) -> list[Any] | None:
    """The parts of another container in the order of the first one's; by their names.

    Returns:
        `None` if it is another container, or lacks a part, or has more.

    Examples:
        >>> parts_like(take_apart({"a": 1, "b": 2}), take_apart({"b": 3, "a": 4}))
        [4, 3]
    """
    if other is None or first.tag != other.tag:
        return None
    names, found = named_parts(first), named_parts(other)
    return [found[name] for name in names] if names.keys() == found.keys() else None


def builder(tag: str, note: Any, kind: type) -> Callable[[Sequence[Any]], Any]:
    """From parts to a value of a class, for `take_apart` and for files."""
    match tag:
        case "t" | "l":
            return kind
        case "d":
            return lambda parts: dict(zip(note, parts, strict=True))
        case "n":
            return lambda parts: tuple.__new__(kind, parts)
        case _:
            return lambda parts: _with_attributes(kind, note, parts)


def class_name(kind: type) -> str:
    """The name of a class in files, by which another process finds it.

    Raises:
        StoreError: If it is not at the top level of its module.
    """
    name = f"{kind.__module__}:{kind.__qualname__}"
    if _look_up(name) is not kind:
        raise StoreError(
            f"an object of class `{kind.__qualname__}` cannot be written, because "
            f"another process would not find the class in `{kind.__module__}`. Define "
            "it at the top level of a module."
        )
    return name


def class_called(name: str) -> type:
    """The class that a file names: one of a module that is imported already.

    A file must not be able to import a module, or to name what is no state.
    """
    kind = _look_up(name)
    if isinstance(kind, type) and (
        is_dataclass(kind)
        or opaque(kind) is not None
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    ):
        return kind
    raise SnapshotError(
        f"the class `{name}` is not there, or is not a dataclass, named tuple or "
        "registered class any more. Import the module that defines it before the call."
    )


def _look_up(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _node(tag: str, note: Any, parts: Sequence[Any], kind: type) -> Node:
    return Node(tag, note, parts, builder(tag, note, kind))


def _attributes(value: Any) -> list[str]:
    """The fields of a dataclass, and what else was set on the object."""
    names = [field.name for field in fields(value) if hasattr(value, field.name)]
    more = [name for name in getattr(value, "__dict__", ()) if name not in names]
    return names + more


def _with_attributes(kind: type, names: Sequence[str], parts: Sequence[Any]) -> Any:
    # Neither `__init__` nor the guard of a frozen class is run: this is a copy.
    made = object.__new__(kind)
    for name, part in zip(names, parts, strict=True):
        object.__setattr__(made, name, part)
    return made


TOLD_BY_TAG: dict[str, Any] = {"t": tuple, "l": list, "d": dict}
"""The classes that a file names by their tags alone."""

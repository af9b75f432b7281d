"""Names for pieces of code, the same in every process that has the same program.

A capsule refers to the code that goes on and to that of its closures. On disk each
piece is a place: which definition it belongs to, and its number in a walk through that.
"""

from collections.abc import Iterator
from typing import Any, Protocol

from retape._errors import SnapshotError
from retape.engines.vlad.values._values import Closure

Place = tuple[str, int]
"""A definition's name, or one that no definition has, and a number within it."""

_PARTS = ("value", "fn", "a", "b", "c", "body")
"""The attributes of a piece of code that may hold others."""


class CodeLinker(Protocol):
    """A translator of definitions, as the codebook needs it."""

    globals: dict[str, Closure]

    def function(self, name: str) -> Closure: ...


class CodeBook:
    """Places of the code of one linked program.

    Args:
        linker: It has the definitions.
        others: Code that belongs to none of them, by names that none has.
    """

    def __init__(self, linker: CodeLinker, others: dict[str, Any]) -> None:
        self._linker = linker
        self._others = others
        self._places: dict[int, Place] = {}
        self._pieces: dict[str, list[Any]] = {}

    def place(self, code: Any) -> Place:
        """The number of a piece of code."""
        if id(code) not in self._places:
            for name in (*self._others, *self._linker.globals):
                self._list(name)
        return self._places[id(code)]

    def piece(self, place: Place) -> Any:
        """The piece of code that stands at a place.

        Raises:
            SnapshotError: If there is none: the place is another program's.
        """
        name, number = place
        try:
            return self._list(name)[number]
        except (KeyError, IndexError):
            raise SnapshotError(
                f"the program has no piece of code {number} in `{name}`. The snapshot "
                "is another program's; remove its directory."
            ) from None

    def _list(self, name: str) -> list[Any]:
        if name not in self._pieces:
            root = self._others.get(name)
            if root is None:
                root = self._linker.function(name).code
            own = list(self._walk(root))
            self._pieces[name] = own
            self._places.update({id(p): (name, i) for i, p in enumerate(own)})
        return self._pieces[name]

    def _walk(self, root: Any) -> Iterator[Any]:
        """The code in a definition, that of others it mentions left out."""
        others = {id(closure.code) for closure in self._linker.globals.values()}
        seen: set[int] = set()
        stack = [root]
        while stack:
            top = stack.pop()
            if id(top) in seen or (id(top) in others and top is not root):
                continue
            seen.add(id(top))
            yield top
            inside = [piece for part in _PARTS for piece in _pieces_in(top, part)]
            stack.extend(reversed(inside))


def _pieces_in(code: Any, part: str) -> list[Any]:
    """The pieces of code in an attribute of one."""
    value = getattr(code, part, None)
    if type(value) is Closure:
        value = value.code
    items = value if type(value) is tuple else (value,)
    return [item for item in items if hasattr(item, "where")]

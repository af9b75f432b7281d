"""Changes to PyTorch that last while any thread records.

Recordings of several threads end in any order: the first one makes the change, and the
last one undoes it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any

Undo = Callable[[], object]


class SharedChange:
    """One change to the process, for as long as any of its blocks is open.

    Args:
        change: Makes it, from what the first block is given, and returns what undoes
            it.

    Examples:
        >>> found = []
        >>> change = SharedChange(lambda: found.append(1) or found.clear)
        >>> with change.made(), change.made():
        ...     found
        [1]
        >>> found
        []
    """

    def __init__(self, change: Callable[..., Undo]) -> None:
        self._change, self._lock, self._open = change, Lock(), 0
        self._undo: Undo | None = None

    @contextmanager
    def made(self, *given: Any) -> Iterator[None]:
        """Have it made from here to the end of the block."""
        with self._lock:
            if self._open == 0:
                self._undo = self._change(*given)
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                if self._open == 0 and self._undo is not None:
                    self._undo()


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> Undo:
    """Put something made of an attribute in its place; what puts it back.

    Examples:
        >>> class Owner(dict): ...
        >>> undo = replace(Owner, "get", lambda usual: lambda self, key: 7)
        >>> Owner().get("key")
        7
        >>> undo()
        >>> Owner().get("key")
    """
    usual, inherited = getattr(owner, name), name not in vars(owner)
    setattr(owner, name, make(usual))
    if inherited:
        return partial(delattr, owner, name)
    return partial(setattr, owner, name, usual)

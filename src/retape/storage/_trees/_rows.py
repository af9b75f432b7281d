"""Copies of a few trees of numbers that are alike, leaf by leaf in rows of one array.

    {"x": [1, 2], "t": 0.5}                      x         t
    {"x": [3, 4], "t": 0.7}      row 0         [1 2]     [0.5]
                                 row 1         [3 4]     [0.7]

A question about all of them is a call of NumPy's for each leaf.
"""

# The trees are of any shape, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from retape.storage._trees._bounded import is_within
from retape.storage._trees._leaves import PLAIN, is_array
from retape.storage._trees._magnitude import largest
from retape.storage._trees._tensors import is_tensor

Put = Callable[[int, Any], bool]


class Rows:
    """The last few trees of a run.

    Examples:
        >>> import numpy as np
        >>> rows = Rows()
        >>> put = rows.putter({"x": np.zeros(2), "t": 0.0})
        >>> put(0, {"x": np.array([1.0, 2.0]), "t": 0.5})
        True
        >>> put(1, {"x": np.array([3.0, 4.0]), "t": -7.0})
        True
        >>> rows.largest(0), rows.within(2, 7.0), rows.within(2, 6.0)
        (2.0, True, False)
    """

    COUNT = 64
    """Trees that are held."""

    def __init__(self) -> None:
        self._leaves: list[Any] = []

    def putter(self, like: Any) -> Put | None:
        """A function that copies a tree into a row, and tells if it was like `like`.

        Returns:
            The function; `None` if there are leaves that have no place in an array.
        """
        kind = type(like)
        if kind in (tuple, list):
            return _of_parts(kind, dict(enumerate(map(self.putter, like))))
        if kind is dict:
            return _of_parts(kind, {k: self.putter(v) for k, v in like.items()})
        if kind is float:
            return self._of_float()
        if kind in PLAIN:
            return None if kind is complex else lambda row, leaf: type(leaf) is kind
        if is_array(like) and like.dtype.char in "df":
            return self._of_array(like)
        return self._of_tensor(like) if is_tensor(like) else None

    def within(self, count: int, bound: float) -> bool:
        """Tell whether all numbers in the first rows are finite, and not above it."""
        return all(is_within(leaf[:count], bound) for leaf in self._leaves)

    def largest(self, row: int) -> float:
        """The largest magnitude in a row; infinity if one is not finite."""
        return largest([leaf[row : row + 1] for leaf in self._leaves])

    def _new(self, shape: tuple[int, ...], dtype: Any) -> Any:
        import numpy as np

        self._leaves.append(np.empty((self.COUNT, *shape), dtype))
        return self._leaves[-1]

    def _of_float(self) -> Put:
        rows = self._new((), "d")

        def put(row: int, leaf: Any) -> bool:
            if type(leaf) is not float:
                return False
            rows[row] = leaf
            return True

        return put

    def _of_array(self, like: Any) -> Put:
        rows, kind, dtype = self._new(like.shape, like.dtype), type(like), like.dtype

        def put(row: int, leaf: Any) -> bool:
            if type(leaf) is kind and leaf.dtype is dtype:
                # One number for all of a row is as large as the row.
                try:
                    rows[row] = leaf
                except ValueError:
                    return False
                return True
            return False

        return put

    def _of_tensor(self, like: Any) -> Put | None:
        try:
            put_array = self._of_array(like.detach().numpy())
        except (RuntimeError, TypeError):  # its numbers have no array
            return None
        kind = type(like)

        def put(row: int, leaf: Any) -> bool:
            try:
                return type(leaf) is kind and put_array(row, leaf.detach().numpy())
            except (RuntimeError, TypeError):
                return False

        return put


def _of_parts(kind: type, parts: dict[Any, Put | None]) -> Put | None:
    if any(part is None for part in parts.values()):
        return None
    pairs: Any = list(parts.items())

    def put(row: int, tree: Any) -> bool:
        if type(tree) is not kind or len(tree) != len(pairs):
            return False
        try:
            for key, each in pairs:
                if not each(row, tree[key]):
                    return False
        except KeyError:
            return False
        return True

    return put

"""A sequence of short tuples or small sets of integers, in two arrays.

What is measured of a run stays beside the runs that follow its plan. A set of ten slots
takes 700 bytes and an entry here 40: what was measured of a Mamba of two blocks took
192 kB in budgets from 236 kB on, and takes a fifth of that.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Generic, TypeVar, overload

T = TypeVar("T", tuple[int, ...], frozenset[int])


class Packed(Sequence[T], Generic[T]):
    """Entries that are made anew whenever they are asked for.

    Args:
        make: `tuple` or `frozenset`, which makes an entry.
        entries: The integers of each.

    Examples:
        >>> reads = Packed(tuple, [(1, 2), (), (3,)])
        >>> reads[0], reads[-1], reads[1:], len(reads)
        ((1, 2), (3,), [(), (3,)], 3)
        >>> Packed(frozenset, [{1, 2}, ()])[0] == {1, 2}
        True
    """

    __slots__ = ("_ends", "_items", "_make")

    def __init__(
        self, make: Callable[[Iterable[int]], T], entries: Iterable[Iterable[int]]
    ) -> None:
        found = [list(each) for each in entries]
        self._make = make
        self._ends = array("i", accumulate(map(len, found), initial=0))
        self._items = array("i", (item for each in found for item in each))

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[k] for k in range(len(self))[index]]
        k = range(len(self))[index]
        return self._make(self._items[self._ends[k] : self._ends[k + 1]])

"""A cache of the least recently used kind, of bounded size."""

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """Values by key, of which those used last are kept. Callers hold their own lock.

    Args:
        most: How many are kept.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def use(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made if there is none."""
        if key not in self:
            self[key] = make()
            if len(self) > self.most:
                self.popitem(last=False)
        self.move_to_end(key)
        return self[key]

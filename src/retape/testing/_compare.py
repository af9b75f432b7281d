"""Are two opaque values the same? By all their bits, or nearly."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from retape._errors import MachineError, StoreError
from retape.storage import fingerprint


@dataclass(frozen=True, slots=True)
class Comparer:
    """Compares capsules, cotangents, tapes and results.

    Args:
        view: From such a value to a tree of arrays and plain values that shows all of
            it; `None` if it is one.
        tolerance: The most that two floating-point numbers may differ by, relative to
            the largest of their array; 0 for equal bits.
    """

    view: Callable[[Any], Any] | None = None
    tolerance: float = 0.0

    def seen(self, value: Any) -> Any:
        """The value as a tree that nothing can change afterwards, for `same`."""
        tree = as_tree(value if self.view is None else self.view(value))
        try:
            print_of = fingerprint(tree)
        except StoreError as error:
            raise MachineError(
                f"a `{type(value).__name__}` cannot be compared: {error} Pass "
                "`view=`, a function from it to a tree of arrays and plain values."
            ) from error
        if self.tolerance == 0:
            return print_of
        return [_copied(leaf) for leaf in _leaves(tree)]

    def same(self, one: Any, other: Any) -> bool:
        """Tell whether two values that were `seen` are the same."""
        if self.tolerance == 0:
            return one == other
        if len(one) != len(other):
            return False
        pairs = zip(one, other, strict=True)
        return all(_near(a, b, self.tolerance) for a, b in pairs)


def as_tree(value: Any) -> Any:
    """The same value of tuples, lists, dictionaries, NumPy arrays and plain values.

    Arrays of other packages become NumPy's; the fields of a dataclass a dictionary.

    Examples:
        >>> from retape.driver import ToyMachine
        >>> as_tree([ToyMachine(3).start(), (1, None)])
        [{'step': 0, 'value': 3}, (1, None)]
    """
    if isinstance(value, tuple):
        return tuple(as_tree(each) for each in value)
    if isinstance(value, list):
        return [as_tree(each) for each in value]
    if isinstance(value, dict):
        return {key: as_tree(each) for key, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: as_tree(getattr(value, each.name)) for each in fields(value)}
    array = getattr(value, "__array__", None)
    return value if array is None or isinstance(value, type) else array()


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        tree = [tree[key] for key in sorted(tree, key=str)]
    if isinstance(tree, tuple | list):
        for each in tree:
            yield from _leaves(each)
    else:
        yield tree


def _copied(leaf: Any) -> Any:
    return leaf.copy() if hasattr(leaf, "dtype") else leaf


def _near(one: Any, other: Any, tolerance: float) -> bool:
    """Whether two leaves are nearly the same; of numbers, the largest one decides."""
    if _is_text(one) or _is_text(other):
        return one == other
    if getattr(one, "shape", ()) != getattr(other, "shape", ()):
        return False
    if getattr(one, "size", 1) == 0:
        return True
    difference, size = abs(one - other), abs(one)
    largest = size.max() if hasattr(size, "max") else size
    most = difference.max() if hasattr(difference, "max") else difference
    return bool(most <= tolerance * largest)


def _is_text(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, str | bool)

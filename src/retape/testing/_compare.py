"""What is seen of opaque values: two are the same if all their bits are."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from retape._errors import MachineError, StoreError
from retape.storage import fingerprint


def seen(value: Any, view: Callable[[Any], Any] | None = None) -> bytes:
    """A digest of a capsule, a cotangent, a tape or a result.

    Args:
        value: It.
        view: From it to a tree of arrays and plain values that shows all of it; `None`
            if it is one.
    """
    try:
        return fingerprint(as_tree(value if view is None else view(value)))
    except StoreError as error:
        raise MachineError(
            f"a `{type(value).__name__}` cannot be compared: {error} Pass `view=`, a "
            "function from it to a tree of arrays and plain values."
        ) from error


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

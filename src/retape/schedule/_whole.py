"""Counts that a caller passes: whole numbers, as Python's own integers.

An integer of NumPy's is one too, but its arithmetic overflows, where counts of steps
and advances may be of any size; so every count becomes Python's own at the door.
"""

from operator import index
from typing import SupportsIndex, cast

from retape._errors import PlanError


def whole(name: str, value: object) -> int:
    """An integer of any kind as Python's own.

    Raises:
        PlanError: If it is no integer.

    Examples:
        >>> whole("length", 5)
        5
    """
    try:
        if not isinstance(value, bool):
            return index(cast("SupportsIndex", value))
    except TypeError:
        pass
    raise PlanError(
        f"`{name}={value!r}` is not an integer. Counts of steps, stages and "
        "snapshots are exact; pass an `int`."
    )


def settle(record: object, *names: str) -> None:
    """Make fields of a frozen record Python's own integers."""
    for name in names:
        object.__setattr__(record, name, whole(name, getattr(record, name)))

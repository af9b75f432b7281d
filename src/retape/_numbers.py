"""Numbers that a caller passes, of whatever kind, as Python's own."""

from math import nan
from operator import index
from typing import SupportsFloat, SupportsIndex, cast


def number_of(given: object) -> float:
    """A number; NaN for what is none, such as a text or a truth value.

    Examples:
        >>> number_of(2), number_of("2"), number_of(True)
        (2.0, nan, nan)
    """
    if isinstance(given, bool | str | bytes):
        return nan
    try:
        return float(cast("SupportsFloat", given))
    except (TypeError, ValueError, OverflowError):
        return nan


def integer_of(given: object) -> int | None:
    """An integer, NumPy's too; `None` for what is none, such as a truth value.

    Examples:
        >>> integer_of(2), integer_of(2.0), integer_of(True)
        (2, None, None)
    """
    try:
        return None if isinstance(given, bool) else index(cast("SupportsIndex", given))
    except TypeError:
        return None

"""Numbers and words that a caller passes, of whatever kind, as Python's own."""

from collections.abc import Iterable
from math import nan
from operator import index
from typing import SupportsFloat, SupportsIndex, TypeVar, cast

from retape._errors import PlanError

W = TypeVar("W", bound=str)


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


def word_of(name: str, given: object, known: Iterable[W], others: str = "") -> W:
    """One of the few words that an option takes.

    It is not what was given: a plan is compared and hashed, and a text of another type
    only equals the word.

    Args:
        name: The option.
        given: What was passed for it.
        known: The words.
        others: What else it takes, as a clause such as ", or None for the usual".

    Raises:
        PlanError: If it is none of them.

    Examples:
        >>> word_of("split", "treeverse", ["binomial", "treeverse"])
        'treeverse'
    """
    words = tuple(known)
    for word in words:
        if isinstance(given, str) and given == word:
            return word
    listed = " or ".join(map(repr, words))
    raise PlanError(f"`{name}={given!r}` is not known. Pass {listed}{others}.")

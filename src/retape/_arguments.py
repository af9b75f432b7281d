"""Numbers, counts and words that a caller passes, of whatever kind, as Python's own.

An integer of NumPy's is a count, too, but its arithmetic overflows, where counts of
steps and advances may be of any size; so every count becomes Python's own at the door.
"""

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


def whole(name: str, value: object, least: int | None = None) -> int:
    """An integer of any kind as Python's own.

    Args:
        name: What the caller calls it, which `COUNTED` has if there is a least.
        value: What was passed.
        least: The least that it can be.

    Raises:
        PlanError: If it is no integer, or less.

    Examples:
        >>> whole("length", 5, 0)
        5
    """
    made = integer_of(value)
    if made is None:
        raise PlanError(
            f"`{name}={value!r}` is not an integer: counts of steps, stages and "
            f"snapshots are exact, and this is a `{type(value).__name__}`. Pass an "
            "`int`."
        )
    if least is not None and made < least:
        raise PlanError(
            f"`{name}={value!r}` is not valid: it counts {COUNTED[name]}, of which "
            f"there must be at least {least}. Pass as many or more."
        )
    return made


def truth(name: str, value: object) -> bool:
    """A truth value: a text such as "no" would be a true one.

    Raises:
        PlanError: If it is none.

    Examples:
        >>> truth("verify", True)
        True
    """
    if value is True or value is False:
        return value
    raise PlanError(f"`{name}={value!r}` is no truth value: `True` or `False` is one.")


def settle(record: object, **least: int) -> None:
    """Make fields of a frozen record Python's own integers, no less than so much."""
    for name, most in least.items():
        object.__setattr__(record, name, whole(name, getattr(record, name), most))


COUNTED = {
    **dict.fromkeys(("length", "steps", "n"), "the steps of a run"),
    "stage": "the steps taped at a time",
    "snapshots": "the snapshots alive at once, the start state's included",
    "sweeps": "the times that a step may be advanced",
    "budget": "what all slots together may take",
    "state": "what a state takes",
    "tape": "what the tape of a stage takes",
    "units": "the parts that the budget is divided into",
    "capsule_bytes": "the bytes of a snapshot",
    "tape_bytes": "the bytes of the tape of a step",
    "levels": "nested loops",
    "segment_length": "the steps in a segment",
}
"""What each of them counts."""


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

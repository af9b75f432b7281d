"""What both suites do: get what is tried, try a law, and compare opaque values.

A law is a function that yields what it found to be otherwise, as a clause. The first
sentence of its docstring is the law. One that holds yields nothing.
"""

from collections.abc import Callable, Iterator
from typing import Any

from retape._errors import MachineError, RetapeError, StoreError
from retape.storage import fingerprint


def maker_of(given: Any, is_one: Callable[[Any], bool]) -> Callable[[], Any]:
    """A function that makes what is to be tried, of one or of what a caller wrote.

    Args:
        given: A function or a class that makes it, or the thing itself.
        is_one: Tells whether an object is such a thing.
    """
    if callable(given) and (isinstance(given, type) or not is_one(given)):
        return given
    return lambda: given


def tried(
    law: Callable[..., Any],
    found: Callable[[], Iterator[str]],
    broken: Callable[[str], RetapeError],
) -> str:
    """Try a law.

    Args:
        law: The law, for its sentence.
        found: Begins to look for what is otherwise.
        broken: Makes the error, of the law and of what was found.

    Returns:
        The sentence.
    """
    sentence = (law.__doc__ or "").split("\n")[0]
    try:
        wrong = next(found(), None)
    except Exception as error:
        wrong = f"a `{type(error).__name__}` was raised: {error}"
        raise broken(f"{sentence} But {wrong}") from error
    if wrong is not None:
        raise broken(f"{sentence} But {wrong}")
    return sentence


def seen(value: Any, view: Callable[[Any], Any] | None = None) -> bytes:
    """A digest of a capsule, a cotangent, a tape or a result, of all its bits.

    Args:
        value: It.
        view: From it to a tree, as a state is one, that shows all of it; `None` if it
            is one.
    """
    try:
        return fingerprint(value if view is None else view(value))
    except StoreError as error:
        raise MachineError(
            f"a `{type(value).__name__}` cannot be compared: {error} Pass `view=`, a "
            "function from it to a tree of arrays and plain values."
        ) from error

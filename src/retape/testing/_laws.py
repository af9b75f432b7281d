"""Trying a law: a function that yields what it found to be otherwise, as a clause.

The first sentence of its docstring is the law. One that holds yields nothing.
"""

from collections.abc import Callable, Iterator
from typing import Any

from retape._errors import RetapeError


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

"""Checks of arguments that a front end is often given in the wrong way."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from retape.engines.eager._errors import PlanError

Given = ParamSpec("Given")
R = TypeVar("R")


def budget_by_name(function: Callable[Given, R]) -> Callable[Given, R]:
    """Wrap a function whose arguments have names, to say so if one is given none.

    Raises:
        PlanError: When it is called with an argument without a name.
    """

    @functools.wraps(function)
    def checked(*args: Given.args, **kwargs: Given.kwargs) -> R:
        if not args:
            return function(*args, **kwargs)
        given, name = args[0], function.__name__
        if callable(given):
            advice = (
                f'Say `{name}(memory="1GB")(function)`, or write `@{name}(memory='
                '"1GB")` above it.'
            )
        else:
            advice = f"Say `{name}(memory={given!r})`."
        raise PlanError(
            f"`{name}` was given `{_shown(given)}` without a name, which might be a "
            f"budget or a number of snapshots. {advice}"
        )

    return checked


def check_callable(value: object, advice: str) -> None:
    """Refuse what is no function.

    Raises:
        PlanError: If it cannot be called.
    """
    if not callable(value):
        raise PlanError(
            f"`{_shown(value)}` is of type `{type(value).__name__}`, which cannot be "
            f"called. {advice}"
        )


def check_count(name: str, value: object) -> None:
    """Refuse what is no whole number.

    Raises:
        PlanError: If it is not an integer.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise PlanError(f"`{name}={value!r}` is no whole number. Pass one such as `8`.")


def _shown(value: object) -> str:
    """A value in a message: large ones by their type."""
    text = repr(value)
    return text if len(text) < 40 else type(value).__name__

"""Checks of arguments that a front end is often given in the wrong way."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from retape._bytes import parse_bytes
from retape.engines.eager._errors import PlanError
from retape.plan._base import Plan

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
        raise PlanError(
            f"`{name}` was given `{_shown(given)}` without a name, which might be a "
            f"budget or a number of snapshots. {_as_named(name, given)}"
        )

    return checked


def _as_named(name: str, given: object) -> str:
    """What to say instead of an argument without a name."""
    if callable(given):
        return (
            f'Say `{name}(memory="1GB")(function)`, or write `@{name}(memory="1GB")` '
            "above it."
        )
    if isinstance(given, Plan):
        return f"Say `{name}(plan={given!r})`."
    try:
        parse_bytes(given)  # pyright: ignore[reportArgumentType]
    except (PlanError, TypeError):
        return f'Say `{name}(memory="1GB")` or `{name}(snapshots=8)`.'
    said = f"Say `{name}(memory={given!r})`"
    if isinstance(given, int):
        return f"{said} for so many bytes, or `{name}(snapshots={given!r})`."
    return f"{said}."


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


def _shown(value: object) -> str:
    """A value in a message: large ones by their type."""
    text = repr(value)
    return text if len(text) < 40 else type(value).__name__

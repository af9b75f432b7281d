"""Arguments of a call: by position, by name, by default; and the function in it."""

from inspect import CO_VARARGS, CO_VARKEYWORDS, Signature
from types import FunctionType as PythonFunction
from typing import Any

from retape._errors import GradientTypeError, PlanError
from retape.engines.vlad.python.terms._statics import function_key


def checked_argnums(argnums: Any) -> int | tuple[int, ...]:
    """Numbers of arguments, if they can be.

    Raises:
        PlanError: If there are none, or one is no number or stands twice.
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if not numbers or not all(type(n) is int and n >= 0 for n in numbers):
        raise PlanError(
            f"`argnums={argnums!r}` names no arguments; pass a number from 0, or a "
            "tuple of them"
        )
    if len(set(numbers)) < len(numbers):
        raise PlanError(f"`argnums={argnums!r}` names an argument twice")
    return argnums if isinstance(argnums, int) else numbers


def checked_function(function: Any) -> PythonFunction:
    """The Python function inside what is to be compiled.

    Raises:
        GradientTypeError: If there is none.
    """
    found = innermost(function)
    if function_key(function) is None or found is None:
        raise GradientTypeError(
            f"`{function!r}` is no Python function that could be compiled; pass a "
            "function written with `def` or `lambda`, or what `native` made of one"
        )
    return found


def innermost(function: Any) -> Any:
    """The Python function inside derivatives and decorators; `None` without one."""
    while not isinstance(function, PythonFunction):
        if hasattr(function, "__retape_derivative__"):
            function = function.__retape_derivative__[1]
        elif getattr(function, "__retape_function__", None) is not None:
            function = function.__retape_function__
        else:
            return None
    return function


def bound(
    function: PythonFunction, args: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[Any, ...]:
    """Arguments by position: those by name, and defaults, in their places."""
    code = function.__code__
    if code.co_kwonlyargcount or code.co_flags & (CO_VARARGS | CO_VARKEYWORDS):
        return args  # refused where it is compiled, with its line
    if not keywords and len(args) == code.co_argcount:
        return args
    parameters = Signature.from_callable(function, follow_wrapped=False)
    try:
        given = parameters.bind(*args, **keywords)
    except TypeError as error:
        raise TypeError(f"{function.__name__}(): {error}") from None
    given.apply_defaults()
    return given.args

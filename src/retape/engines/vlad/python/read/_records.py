"""Named tuples, dataclasses and dicts of fixed keys: values whose parts have names."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from inspect import Parameter, signature
from types import FunctionType
from typing import Any


def is_record_class(value: Any) -> bool:
    """Whether a class is a named tuple or a dataclass that makes itself as all do.

    Examples:
        >>> from fractions import Fraction
        >>> from typing import NamedTuple
        >>> class Point(NamedTuple):
        ...     x: float
        >>> is_record_class(Point), is_record_class(Fraction)
        (True, False)
    """
    if not isinstance(value, type):
        return False
    if issubclass(value, tuple):
        return hasattr(value, "_fields") and _is_generated(value.__new__)
    return (
        is_dataclass(value)
        and _is_generated(value.__init__)
        and not hasattr(value, "__post_init__")
        and value.__getattribute__ is object.__getattribute__
        and [*parameters_of(value)] == [*value.__dataclass_fields__]
    )


def _is_generated(function: Any) -> bool:
    """Whether the library wrote a function, from a text of its own."""
    code = function.__code__ if isinstance(function, FunctionType) else None
    return code is not None and code.co_filename.startswith("<")


def parameters_of(made: type) -> Mapping[str, Parameter]:
    """What a record class is called with, by name."""
    return signature(made).parameters


def record_parts(value: Any) -> tuple[tuple[str, ...], Any, tuple[Any, ...]] | None:
    """The names, the class and the parts of a record; `None` for another value."""
    made = type(value)
    if made is dict:
        if not value or not all(type(key) is str for key in value):
            return None
        return tuple(value), dict, tuple(value.values())
    if not is_record_class(made):
        return None
    names = tuple(parameters_of(made))
    return names, made, tuple(getattr(value, name) for name in names)


def is_frozen(value: Any) -> bool:
    """Whether nobody can give a record other parts."""
    if isinstance(value, tuple):
        return True
    options = getattr(value, "__dataclass_params__", None)
    return options is not None and options.frozen

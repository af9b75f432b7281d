"""Callables that are found again for equal functions, a bounded number of them."""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from types import CellType
from types import FunctionType as PythonFunction
from typing import Any, TypeVar

T = TypeVar("T")

REMEMBERED = 64
"""Functions whose derivatives are kept: each is an object of some 200 kB."""


_FOUND_AGAIN: OrderedDict[Any, tuple[Any, Any]] = OrderedDict()
_LOCK = Lock()


def remembered(function: Any, options: tuple[Any, ...], make: Callable[[], T]) -> T:
    """What was made for a function and the options, or is made now.

    It is kept until so many others were asked for since. Functions are equal if one
    `def` or `lambda` made them, and what they close over and have as defaults is equal:
    then they are compiled to the same.
    """
    key = (identity(function), options)
    with _LOCK:
        found = _FOUND_AGAIN.get(key)
        # Another variable may have been given to the closure of the first one.
        if found is None or identity(found[0]) != key[0]:
            _FOUND_AGAIN[key] = found = (function, make())
        _FOUND_AGAIN.move_to_end(key)
        if len(_FOUND_AGAIN) > REMEMBERED:
            _FOUND_AGAIN.popitem(last=False)
        return found[1]


def identity(value: Any) -> Any:
    """A key that values have in common which are compiled to the same.

    Objects are told apart by their addresses, so the key is of use only as long as the
    value lives.
    """
    return _key_of(value, ())


def _key_of(value: Any, around: tuple[int, ...]) -> Any:
    if type(value) in (bool, int, str, type(None)):
        return type(value), value
    if type(value) is float:
        return float, value.hex()
    if type(value) is tuple:
        return tuple, tuple(_key_of(item, around) for item in value)
    if id(value) in around:  # a function that closes over itself
        return "around", around.index(id(value))
    around = (*around, id(value))
    derivative = getattr(value, "__retape_derivative__", None)
    if derivative is not None:
        kind, function, argnums = derivative
        return value.options, kind, argnums, _key_of(function, around)
    inner = getattr(value, "__retape_function__", None)
    if inner is not None:
        return value.options, _key_of(inner, around)
    if type(value) is not PythonFunction:
        return id(value)
    held = [*(value.__defaults__ or ()), *map(_content, value.__closure__ or ())]
    parts = tuple(_key_of(each, around) for each in held)
    return id(value.__code__), id(value.__globals__), parts


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return cell

"""Functions that are found again: by name elsewhere, and here by what they are."""

import functools
import importlib
import runpy
import sys
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from types import CellType, SimpleNamespace
from types import FunctionType as PythonFunction
from typing import Any, NamedTuple, TypeVar

from retape._errors import UnsupportedError

_MAIN = "__main__"


class Name(NamedTuple):
    """Where another process finds a function.

    Attributes:
        module: Its module's name.
        qualname: Its name in there.
        path: The file of the program, if that is its module: workers that were not
            started from it, as those of joblib are, have another `__main__`.
    """

    module: str
    qualname: str
    path: str | None


def found_by_name(function: PythonFunction) -> Any:
    """What a module has under the name of a function; `None` if nothing."""
    return _named(sys.modules.get(function.__module__), function.__qualname__)


def name_of(function: PythonFunction) -> Name:
    """The name of a function, or of what has taken its name."""
    main = function.__module__ == _MAIN
    path = getattr(sys.modules[_MAIN], "__file__", None) if main else None
    return Name(function.__module__, function.__qualname__, path)


def checked_name(function: PythonFunction) -> Name:
    """The name of a function that is to be pickled.

    Raises:
        UnsupportedError: If its module does not have it under its name.
    """
    if found_by_name(function) is not function:
        raise UnsupportedError(
            f"the function `{function.__qualname__}` of `{function.__module__}` cannot "
            "be pickled, since another process finds a compiled function by its name; "
            "define it with `def` at the top of a module, and keep it under that name"
        )
    return name_of(function)


def found_again(name: Name) -> Any:
    """What this process has under a name.

    The file of another program is run as `multiprocessing` does it: as `__mp_main__`,
    so that what `if __name__ == "__main__":` guards is not.

    Raises:
        UnsupportedError: If there is nothing, as where the program is a notebook.
    """
    found = _named(importlib.import_module(name.module), name.qualname)
    if found is None and name.path is not None:
        found = _named(_names_of_program(name.path), name.qualname)
    if found is None:
        raise UnsupportedError(
            f"the function `{name.qualname}` of `{name.module}` is not known in this "
            "process, which finds compiled functions by their names; write it to a "
            "module, and import it"
        )
    return found


def _named(module: Any, qualname: str) -> Any:
    for name in qualname.split("."):
        module = getattr(module, name, None)
    return module


@functools.cache
def _names_of_program(path: str) -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(path, run_name="__mp_main__"))


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

"""Functions in other processes: found there by their names, and refused without one."""

import functools
import importlib
import runpy
import sys
from types import FunctionType as PythonFunction
from types import SimpleNamespace
from typing import Any, NamedTuple

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

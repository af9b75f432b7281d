"""What a compiled function depends on outside of itself, as C looks at it."""

import builtins
from collections.abc import Iterator
from functools import partial
from types import FunctionType as PythonFunction
from types import ModuleType
from typing import Any

from retape.engines.vlad.python.expressions._unit import Unit

Look = tuple[str, Any, Any, Any]
"""How something is looked at, where and under which name, and what it has to be."""


class _CannotLook(Exception):
    """Python's own code is needed to see whether something has changed."""


def looks_of(unit: Unit) -> list[Look] | None:
    """Looks that tell what `unit.is_current` tells; `None` if there are none."""
    try:
        return list(_looks(unit))
    except _CannotLook:
        return None


def _looks(unit: Unit) -> Iterator[Look]:
    for (lookup, name), value in unit.outside.items():
        if isinstance(lookup, partial):
            (module,) = lookup.args
            yield from _in_module(module, name, value)
            continue
        function = unit.reader(lookup)
        if function is None:
            raise _CannotLook
        yield from _of_function(function, name, value)
    for function, (code, defaults, by_name) in unit.made_of.items():
        yield ("code", function, None, code)
        yield ("defaults", function, None, defaults)
        yield ("by name", function, None, by_name)


def _of_function(function: PythonFunction, name: str, value: Any) -> Iterator[Look]:
    free = function.__code__.co_freevars
    if name in free:
        assert function.__closure__ is not None, "it has free variables"
        yield ("content", function.__closure__[free.index(name)], None, value)
        return
    names = function.__globals__
    if type(names) is not dict:
        raise _CannotLook
    if name in names:
        yield _item(names, name, value)
    else:
        yield ("no item", names, name, None)
        yield from _in_module(builtins, name, value)


def _in_module(module: ModuleType, name: str, value: Any) -> Iterator[Look]:
    if type(module) is not ModuleType or hasattr(ModuleType, name):
        raise _CannotLook
    yield _item(vars(module), name, value)


def _item(names: dict[str, Any], name: str, value: Any) -> Look:
    if names.get(name) is not value:  # equal, but another object
        raise _CannotLook
    return ("item", names, name, value)

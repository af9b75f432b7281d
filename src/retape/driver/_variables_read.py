"""The variables that a function reads: of its defaults, closure, module and object."""

# Anything can be a variable of a function, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import (
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
)
from typing import Any

_ROOT = Path(__file__).parents[1]
_INSTALLED = ("site-packages", "dist-packages")


def unwrapped(function: object) -> object:
    """The Python function inside a method, a `partial` or a decorator's object."""
    while True:
        if isinstance(function, partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        elif (
            not isinstance(function, FunctionType) and wrapped_by(function) is not None
        ):
            function = wrapped_by(function)
        else:
            return function


def wrapped_by(value: object) -> object:
    """The Python function that a compiled or cached one was made from."""
    for name in ("__wrapped__", "py_func", "func"):
        inner = getattr(value, name, None)
        if isinstance(inner, FunctionType):
            return inner
    return None


def variables_of(function: object) -> Iterator[tuple[str, Any]]:
    """The variables of a function, with their names."""
    if isinstance(function, partial):
        yield from ((f"argument {i}", arg) for i, arg in enumerate(function.args))
        yield from function.keywords.items()
        yield from variables_of(function.func)
    elif isinstance(function, MethodType):
        yield "self", function.__self__
        yield from variables_of(function.__func__)
    elif isinstance(function, FunctionType):
        yield from _defaults(function)
        read = _names_read(function.__code__)
        names = function.__code__.co_freevars
        for name, cell in zip(names, function.__closure__ or (), strict=True):
            yield name, contents_of(cell)
            yield from _of_module(name, contents_of(cell), read)
        for name in sorted({name for name, *_ in read} - set(names)):
            if name in function.__globals__:
                yield name, function.__globals__[name]
                yield from _of_module(name, function.__globals__[name], read)
    elif wrapped_by(function) is not None:
        yield from variables_of(wrapped_by(function))
    else:
        yield "self", function


def _defaults(function: FunctionType) -> Iterator[tuple[str, Any]]:
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    yield from zip(names, defaults, strict=True)
    yield from sorted((function.__kwdefaults__ or {}).items())


def contents_of(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # A variable that is not set yet.


def _of_module(
    name: str, module: Any, read: set[tuple[str, ...]]
) -> Iterator[tuple[str, Any]]:
    """What code reads of a module of the user's: settings are often kept in one.

    A module is known by its file, and what a program has set in it is not there.
    """
    if not isinstance(module, ModuleType) or is_installed(module.__name__):
        return
    for path in sorted(path for path in read if path[0] == name):
        value, at = module, name
        for part in path[1:]:
            if not isinstance(value, ModuleType) or is_installed(value.__name__):
                break
            value, at = getattr(value, part, None), f"{at}.{part}"
            yield at, value


def _names_read(code: CodeType) -> set[tuple[str, ...]]:
    """The variables that code reads, functions inside it included, with attributes.

    Of `module.part.x` these are `module`, `part` and `x`.
    """
    found: set[tuple[str, ...]] = set()
    path: tuple[str, ...] = ()
    for instruction in dis.get_instructions(code):
        if instruction.opname in _VARIABLE:
            path = (str(instruction.argval),)
        elif path and instruction.opname in _ATTRIBUTE:
            path = (*path, str(instruction.argval))
        else:
            path = ()
        if path:
            found.add(path)
    inside = [part for part in code.co_consts if isinstance(part, CodeType)]
    return found.union(*map(_names_read, inside))


_VARIABLE = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF")
_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")


def is_installed(module: str | None) -> bool:
    """Tell whether a module is Python's or a package's, and not the user's own."""
    top = (module or "builtins").partition(".")[0]
    if top in sys.stdlib_module_names and top != "__main__":
        return True
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    if file is None:
        return module != "__main__"
    path = Path(file)
    return _ROOT in path.parents or any(part in _INSTALLED for part in path.parts)

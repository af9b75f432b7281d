"""The variables that a function reads: of its defaults, closure, module and object."""

# Anything can be a variable of a function, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import partial
from types import (
    CodeType,
    FunctionType,
    MethodType,
)
from typing import Any


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
        names = function.__code__.co_freevars
        for name, cell in zip(names, function.__closure__ or (), strict=True):
            yield name, contents_of(cell)
        for name in sorted(_globals_read(function.__code__)):
            if name in function.__globals__:
                yield name, function.__globals__[name]
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


def _globals_read(code: CodeType) -> set[str]:
    """The names of module variables that code reads, functions inside it included."""
    names = {
        str(instruction.argval)
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    inside = [part for part in code.co_consts if isinstance(part, CodeType)]
    return names.union(*map(_globals_read, inside))

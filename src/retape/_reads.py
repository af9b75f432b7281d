"""What a function reads besides its arguments: its closure, its globals, its code.

Every engine asks that in its own way: whether a run on disk is the same program's,
whether a trace still stands for a function, whether a file was saved again, which
modules a call may change. What Python tells of a function is read here, once.
"""

from __future__ import annotations

import dis
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache, partial
from types import CodeType, FunctionType, MethodType
from typing import Any

_PACKAGES = tuple(sysconfig.get_paths()[name] for name in ("purelib", "platlib"))
# Functions that `functools`, NumPy, Numba and others have wrapped.
_WRAPPERS = ("__wrapped__", "pyfunc", "py_func", "func")


def closure_of(function: Any) -> dict[str, Any]:
    """What a function closes over, by name; a variable that is not set yet is left out.

    Examples:
        >>> rate = 0.5
        >>> def made(by):
        ...     return lambda x: by * rate * x
        >>> closure_of(made(2)), globals_of(made(2))
        ({'by': 2}, {'rate': 0.5})
    """
    found: dict[str, Any] = {}
    code: CodeType | None = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None) or ()
    for name, cell in zip(code.co_freevars if code else (), cells, strict=True):
        with suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def globals_of(function: Any) -> dict[str, Any]:
    """The globals that a function reads, those of functions inside it included."""
    code: CodeType | None = getattr(function, "__code__", None)
    known: dict[str, Any] = getattr(function, "__globals__", {})
    names = globals_in(code) if code else ()
    return {name: known[name] for name in sorted(names) if name in known}


@lru_cache(4096)
def globals_in(code: CodeType) -> frozenset[str]:
    """The names of globals that code reads, codes inside it included."""
    read = {
        each.argval
        for part in (code, *codes_in(code))
        for each in dis.get_instructions(part)
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    return frozenset(read)


@lru_cache(4096)
def names_in(code: CodeType) -> frozenset[str]:
    """All names in code, those of attributes, too."""
    return frozenset().union(*(p.co_names for p in (code, *codes_in(code))))


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """The codes of the functions, classes and comprehensions inside code."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from codes_in(each)


def inside(function: object) -> object:
    """The function that a method, a `partial` or a decorator's object calls."""
    if isinstance(function, partial):
        return function.func
    if isinstance(function, MethodType):
        return function.__func__
    if isinstance(function, FunctionType):
        return None
    inner = (getattr(function, name, None) for name in _WRAPPERS)
    return next((found for found in inner if isinstance(found, FunctionType)), None)


def unwrapped(function: object) -> object:
    """The Python function inside all that is around it."""
    while True:
        inner = inside(function)
        if inner is None:
            return function
        function = inner


@lru_cache(4096)
def is_installed(module: str | None) -> bool:
    """Tell whether a module is Python's or a package's, and not the user's own."""
    top = (module or "").partition(".")[0]
    if top == "__main__":  # whatever started it: a kernel, a test runner
        return False
    if top in sys.stdlib_module_names or top == __name__.partition(".")[0]:
        return True
    for name in (module, top):
        file = str(getattr(sys.modules.get(name or ""), "__file__", None) or "")
        if file.startswith(_PACKAGES) or "-packages" in file:
            return True
    return False

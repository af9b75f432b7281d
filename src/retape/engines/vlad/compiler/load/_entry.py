"""A program's function as CPython calls it, without Python's own code in between.

`runtime/entry.c` is what is called. It is loaded once and never unloaded; each function
has a table, which says that the program is gone when it is.
"""

import ctypes
import sys
from collections.abc import Callable, Sequence
from ctypes import c_char, c_int, c_int64, c_size_t, c_void_p, py_object
from functools import cache
from typing import Any

from retape._errors import UnsupportedError
from retape.engines.vlad.compiler.load._c_compiler import build_entry
from retape.engines.vlad.compiler.load._native import Native
from retape.engines.vlad.compiler.load._shared_object import SharedObject

MOST_NUMBERS = 9
"""Arguments of a function at most, and numbers in its value."""

STEPS = 10_000
"""Of a call at most, some microseconds: Python's other threads wait meanwhile."""

_FUNCTIONS = (
    "PyFloat_AsDouble PyFloat_FromDouble PyLong_AsLongLongAndOverflow "
    "PyLong_FromDouble PyObject_Vectorcall PyDict_GetItemWithError PyCell_Get "
    "Py_DecRef PyFunction_GetCode PyFunction_GetDefaults PyFunction_GetKwDefaults "
    "PyErr_Occurred PyErr_Clear PyTuple_GetItem PyLong_AsVoidPtr PyTuple_New "
    "PyTuple_SetItem Py_IncRef"
).split()
_OBJECTS = (float, int, True, False)
_FAST, _WITH_NAMES = 0x80, 0x02
_TYPE = ctypes.sizeof(c_void_p)
"""Where the type of an object stands in it."""


_HOW = ("item", "no item", "content", "code", "defaults", "by name")
"""How something outside of a function is looked at, in the order of `entry.c`."""


class _Look(ctypes.Structure):
    _fields_ = [
        ("how", c_int64),
        ("where", c_void_p),
        ("key", c_void_p),
        ("value", c_void_p),
    ]


class _Table(ctypes.Structure):
    """The record of `runtime/entry.c`."""

    _fields_ = [
        ("run", c_void_p),
        ("otherwise", c_void_p),
        ("look", c_void_p),
        ("busy", c_void_p),
        *[(name, c_int64) for name in "looks definition count leaves steps".split()],
        ("skip", c_int64),
        ("patience", c_int64),
        ("booleans", c_int64),
        ("kind", c_char * MOST_NUMBERS),
        ("gives", c_char * (2 * MOST_NUMBERS + 1)),
    ]


class _Method(ctypes.Structure):
    """`PyMethodDef`."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", c_void_p),
        ("flags", c_int),
        ("doc", ctypes.c_char_p),
    ]


def made_entry(
    native: Native,
    definition: int,
    kinds: str,
    gives: str,
    looks: Sequence[tuple[str, Any, Any, Any]],
    busy: c_int64,
    otherwise: Callable[..., Any],
) -> Callable[..., Any] | None:
    """A built-in function that calls a definition, or `None` if it cannot be had.

    Args:
        native: The program.
        definition: The definition's number.
        kinds: A letter for each argument: f(loat), i(nt), b(ool).
        gives: The value's letter; of a tuple it is t, then how many items, and they.
        looks: How something is looked at, where and under which name, and what it has
            to be.
        busy: How many calls of the program are under way.
        otherwise: What is called where something is not.
    """
    leaves = sum(letter in "fib" for letter in gives)
    if not (
        0 < len(kinds) <= MOST_NUMBERS
        and 0 < leaves <= MOST_NUMBERS
        and len(gives) <= 2 * MOST_NUMBERS
    ):
        return None
    function = _entry_call()
    if function is None:
        return None
    rows = (_Look * max(1, len(looks)))(*map(_look_row, looks))
    table = _Table(
        run=ctypes.cast(native.dll.vlad_brief, c_void_p).value,
        otherwise=id(otherwise),
        look=ctypes.addressof(rows),
        busy=ctypes.addressof(busy),
        looks=len(looks),
        definition=definition,
        count=len(kinds),
        leaves=leaves,
        steps=STEPS,
        booleans=sum(1 << i for i, kind in enumerate(kinds) if kind == "b"),
        kind=kinds.encode(),
        gives=gives.encode(),
    )

    def gone() -> None:
        table.run = None

    native.at_end.append(gone)
    method = _Method(b"__call__", function, _FAST | _WITH_NAMES, None)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = py_object, [c_void_p, py_object, c_void_p]
    # What the table points to lives as long as the function has this.
    kept = (ctypes.addressof(table), table, method, rows, looks, busy, otherwise)
    return make(ctypes.addressof(method), kept, None)


def _look_row(look: tuple[str, Any, Any, Any]) -> _Look:
    how, where, key, value = look
    # Functions without defaults have none in C, and `None` in Python.
    nothing = value is None and how in ("defaults", "by name")
    return _Look(_HOW.index(how), id(where), id(key), None if nothing else id(value))


@cache
def _entry_call() -> int | None:
    """The address of what CPython calls; `None` where it is not known to work."""
    if not _is_known_python():
        return None
    try:
        library = SharedObject(build_entry()).dll
    except UnsupportedError:
        return None
    functions = [
        ctypes.cast(getattr(ctypes.pythonapi, name), c_void_p).value
        for name in _FUNCTIONS
    ]
    given = [*functions, *map(id, _OBJECTS)]
    library.entry_begin((c_void_p * len(given))(*given))
    return ctypes.cast(library.entry_call, c_void_p).value


def _is_known_python() -> bool:
    """Whether this is CPython with its lock, whose objects begin as we think."""
    python = getattr(ctypes, "pythonapi", None)
    if python is None or sys.implementation.name != "cpython":
        return False
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    if ctypes.sizeof(c_size_t) != 8:
        return False
    needed = (*_FUNCTIONS, "PyCFunction_NewEx")
    if not all(hasattr(python, name) for name in needed):
        return False
    return all(
        c_void_p.from_address(id(each) + _TYPE).value == id(type(each))
        for each in (1.5, 3, True)
    )

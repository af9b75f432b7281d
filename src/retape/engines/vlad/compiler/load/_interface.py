"""The C interface of a loaded program, `runtime/api.h`, as Python calls it.

Values go in and come out as tokens, and reals beside them. A token says what comes
next: a real, a pair, a vector of so many items, so many reals in one row, or a function
by its number below zero. Reals stand in an array of their own, in order, so that a row
of a million is one copy.
"""

import _ctypes
import ctypes
from array import array
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_double, c_int, c_int32, c_int64
from typing import Any

from retape._errors import UnsupportedError
from retape._native_code import load
from retape.engines.vlad.compiler.load._c_compiler import TOOLS
from retape.engines.vlad.values._values import Shown, Value
from retape.engines.vlad.values._versioned_arrays import Version, vector

_CALLS = (
    "evaluate operate advance stage finish bytes same culprits freeze measured "
    "pack unpack"
).split()


READ = ctypes.CFUNCTYPE(c_int, ctypes.POINTER(c_double))
WRITE = ctypes.CFUNCTYPE(c_int, c_double)
EXTERNAL = ctypes.CFUNCTYPE(
    c_int, c_int32, ctypes.POINTER(c_double), ctypes.POINTER(c_double)
)
HOST = ctypes.CFUNCTYPE(c_int64, c_int64, c_int64, c_int64, c_int64)


_SIGNALS = (
    "PyGILState_Ensure PyGILState_Release PyErr_CheckSignals PyErr_Fetch PyErr_Restore"
).split()


FAULT = -1
"""What a call of a function gives where the program has stopped with one."""


class Request(ctypes.Structure):
    """The record of `runtime/api.h`."""

    _fields_ = [
        *[(name, c_int64) for name in "abcdefrstu"],
        ("reals", ctypes.POINTER(c_double)),
        ("tokens", ctypes.POINTER(c_int32)),
        ("words", ctypes.c_void_p),
    ]


def declared(library: Any) -> Any:
    """An object's functions with the types of their arguments."""
    library.vlad_fault.restype = library.vlad_outermost.restype = ctypes.c_char_p
    library.vlad_packed.argtypes = [ctypes.c_void_p]
    library.vlad_chain.restype = c_int64
    library.vlad_chain.argtypes = [ctypes.c_void_p, c_int64]
    library.vlad_free.argtypes = [c_int64]
    library.vlad_plan.argtypes = [c_int64, c_int64, c_int, c_int64]
    library.vlad_exported.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.vlad_call.restype = c_int64
    for name in _CALLS:
        getattr(library, f"vlad_{name}").restype = c_int
    return library


def let_signals_in(library: Any) -> Callable[[], int] | None:
    """Give an object what `runtime/signals.h` calls, where Python is CPython.

    Returns what raises what a handler raised, if one did.
    """
    python = getattr(ctypes, "pythonapi", None)
    if python is None:
        return None
    found = [ctypes.cast(getattr(python, name), ctypes.c_void_p) for name in _SIGNALS]
    library.vlad_signals((ctypes.c_void_p * len(found))(*(f.value for f in found)))
    return ctypes.PYFUNCTYPE(ctypes.c_int)(("vlad_reraise", library))


class SharedObject:
    """An object's functions, as attributes of `dll`, until it is closed."""

    def __init__(self, image: bytes) -> None:
        self.dll = load(TOOLS, image, ctypes.CDLL)

    def close(self) -> None:
        """Unload the object; none of its functions may be called any more."""
        handle, self.dll._handle = self.dll._handle, 0
        if handle and hasattr(_ctypes, "dlclose"):
            _ctypes.dlclose(handle)


A_REAL, _A_PAIR, _AN_EMPTY, _A_FALSE, _A_TRUE, _A_VECTOR = range(6)
_REALS = 1 << 30


def to_tokens(value: Value) -> tuple[list[int], "array[float]"]:
    """A value without functions as tokens and reals; an array is a vector."""
    tokens: list[int] = []
    reals = array("d")
    stack: list[Any] = [value]
    while stack:
        v = stack.pop()
        if type(v) is float:
            reals.append(v)
            tokens.append(A_REAL)
        elif hasattr(v, "__array_interface__"):
            tokens.append(_REALS + len(v))
            reals.frombytes(v.tobytes())
        elif type(v) is tuple and v:
            tokens.append(_A_PAIR)
            stack.extend((v[1], v[0]))
        elif type(v) is Version:
            items = v.items()
            tokens.append(_A_VECTOR + len(items))
            stack.extend(reversed(items))
        else:
            tokens.append(_AN_EMPTY if type(v) is tuple else _A_FALSE + int(bool(v)))
    return tokens, reals


def request_of(value: Value) -> Request:
    """A record with a value's tokens and reals."""
    tokens, reals = to_tokens(value)
    request = Request(a=len(tokens), b=len(reals))
    request.tokens = (c_int32 * len(tokens))(*tokens)
    request.reals = (c_double * len(reals)).from_buffer(reals) if reals else None
    return request


def from_tokens(
    tokens: Sequence[int],
    reals: Any,
    end: int,
    names: Mapping[int, str | None],
    *,
    as_arrays: bool,
) -> Value:
    """The value of tokens and the first `end` reals.

    A vector of reals is a `Version`, or with `as_arrays` a NumPy array; a function is
    what shows its name.
    """
    stack: list[Value] = []
    # Backwards, so that the parts of a pair or a vector are there before it is made.
    for token in reversed(tokens):
        if token == A_REAL:
            end -= 1
            stack.append(float(reals[end]))
        elif token >= _REALS:
            end -= token - _REALS
            stack.append(_row(reals, end, token - _REALS, as_arrays))
        elif token == _A_PAIR:
            stack.append((stack.pop(), stack.pop()))
        elif token >= _A_VECTOR:
            items = [stack.pop() for _ in range(token - _A_VECTOR)]
            stack.append(vector(items))
        elif token < 0:
            stack.append(Shown(names[-1 - token]))
        else:
            stack.append({_AN_EMPTY: (), _A_FALSE: False, _A_TRUE: True}[token])
    return stack[0]


def _row(reals: Any, start: int, count: int, as_array: bool) -> Any:
    if not as_array:
        return vector(reals[start : start + count])
    if hasattr(reals, "shape"):
        return reals[start : start + count].copy()
    numpy = load_numpy()
    return numpy.frombuffer(reals, numpy.float64, count, 8 * start).copy()


def load_numpy() -> Any:
    """NumPy, in whose format states are kept on disk."""
    try:
        import numpy
    except ImportError:
        raise UnsupportedError(
            "states are kept on disk in NumPy's format, and NumPy is not installed; "
            "`pip install numpy`"
        ) from None
    return numpy

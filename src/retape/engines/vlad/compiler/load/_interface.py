"""The C interface of a loaded program, `runtime/api.h`, as Python calls it."""

import _ctypes
import ctypes
import os
from collections.abc import Callable
from ctypes import c_double, c_int, c_int32, c_int64
from typing import Any

from retape._native_code import load
from retape.engines.vlad.compiler.load._c_compiler import TOOLS

_CALLS = (
    "evaluate operate advance stage finish bytes same export import census freeze "
    "pack unpack paired call"
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
    library.vlad_collections.restype = c_int64
    library.vlad_chain.argtypes = [ctypes.c_void_p, c_int64]
    library.vlad_free.argtypes = [c_int64]
    library.vlad_plan.argtypes = [c_int64, c_int64, c_int, c_int64]
    library.vlad_exported.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
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
        self.dll, self._descriptor = load(TOOLS, image, ctypes.CDLL)

    def close(self) -> None:
        """Unload the object; none of its functions may be called any more."""
        handle, self.dll._handle = self.dll._handle, 0
        if handle and hasattr(_ctypes, "dlclose"):
            _ctypes.dlclose(handle)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

"""The C interface of a loaded program, `runtime/api.h`, as Python calls it."""

import ctypes
from ctypes import c_double, c_int, c_int32, c_int64
from typing import Any

_CALLS = (
    "apply closure operate advance stage finish bytes same export import census pack "
    "unpack paired loads"
).split()


READ = ctypes.CFUNCTYPE(c_int, ctypes.POINTER(c_double))
WRITE = ctypes.CFUNCTYPE(c_int, c_double)
EXTERNAL = ctypes.CFUNCTYPE(
    c_int, c_int32, ctypes.POINTER(c_double), ctypes.POINTER(c_double)
)
HOST = ctypes.CFUNCTYPE(c_int64, c_int64, c_int64, c_int64, c_int64)


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
    library.vlad_collections.restype = library.vlad_grown.restype = c_int64
    library.vlad_chain.argtypes = [ctypes.c_void_p, c_int64]
    library.vlad_free.argtypes = [c_int64]
    library.vlad_single_stage.argtypes = [c_int64, c_int64]
    library.vlad_exported.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    for name in _CALLS:
        getattr(library, f"vlad_{name}").restype = c_int
    return library

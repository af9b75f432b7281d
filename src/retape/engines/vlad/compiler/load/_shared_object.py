"""Shared objects in this process, unloaded when they are dropped."""

import _ctypes
import ctypes
import os

from retape._native_code import load
from retape.engines.vlad.compiler.load._c_compiler import TOOLS


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

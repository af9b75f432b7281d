"""Shared objects in this process: loaded from memory, unloaded when they are dropped.

An object that is loaded twice must not share its state, so each is loaded from a file
of its own, which is removed at once. Where no file may be executed (`noexec`), it is
loaded from a file that is in no folder.
"""

import _ctypes
import ctypes
import os
import tempfile
from collections.abc import Callable

from retape._errors import UnsupportedError
from retape.engines.vlad.compiler.load import _object_cache as objects


class SharedObject:
    """An object's functions, as attributes of `dll`, until it is closed."""

    def __init__(self, image: bytes) -> None:
        self._descriptor: int | None = None
        self.dll = self._loaded(image)

    def close(self) -> None:
        """Unload the object; none of its functions may be called any more."""
        handle, self.dll._handle = self.dll._handle, 0
        if handle and hasattr(_ctypes, "dlclose"):
            _ctypes.dlclose(handle)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _loaded(self, image: bytes) -> ctypes.CDLL:
        ways: list[Callable[[bytes], ctypes.CDLL]] = [_from_cache, _from_temporary]
        if hasattr(os, "memfd_create"):
            ways.append(self._from_memory)
        reason = ""
        for way in ways:
            try:
                return way(image)
            except (OSError, UnsupportedError) as error:
                reason = reason or str(error)
        raise UnsupportedError(
            f"the compiled object cannot be loaded ({reason}); set `$RETAPE_CACHE` to "
            "a folder that can be written and from which programs may be executed, or "
            'use `engine="interpreter"`'
        )

    def _from_memory(self, image: bytes) -> ctypes.CDLL:
        """Load from an anonymous file, which stays open: its name must stay unique."""
        descriptor = os.memfd_create("retape")
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(image)
            dll = ctypes.CDLL(f"/proc/self/fd/{descriptor}")
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return dll


def _from_cache(image: bytes) -> ctypes.CDLL:
    with objects.scratch() as folder:
        return _from_folder(image, str(folder))


def _from_temporary(image: bytes) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        return _from_folder(image, folder)


def _from_folder(image: bytes, folder: str) -> ctypes.CDLL:
    path = os.path.join(folder, "program.so")
    with open(path, "wb") as file:
        file.write(image)
    return ctypes.CDLL(path)

"""An object into this process: from a file that is removed at once, or from memory.

An object that is loaded twice must not share its state, so each is loaded from a file
of its own. Where no file may be executed (`noexec`), it is loaded from a file that is
in no folder.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from retape._errors import UnsupportedError
from retape._native_code._object_cache import ObjectCache
from retape._native_code._toolchain import Toolchain

T = TypeVar("T")


def load(
    tools: Toolchain, image: bytes, open_file: Callable[[str], T]
) -> tuple[T, int | None]:
    """Load an object.

    Args:
        tools: What it was built with.
        image: The object.
        open_file: What loads a file of this name.

    Returns:
        What `open_file` has returned, and a file descriptor that has to stay open as
        long as the object is used, or `None`.

    Raises:
        UnsupportedError: If no way of loading works here.
    """
    attempts = [_from_cache, _from_temporary]
    if hasattr(os, "memfd_create"):
        attempts.append(_from_memory)
    reason = ""
    for attempt in attempts:
        try:
            return attempt(tools, image, open_file)
        except (OSError, ImportError, UnsupportedError) as error:
            reason = reason or str(error)
    raise UnsupportedError(
        f"the compiled object cannot be loaded ({reason}); set `$RETAPE_CACHE` to a "
        "folder that can be written and from which programs may be executed, or "
        f"{tools.instead}."
    )


def _from_cache(
    tools: Toolchain, image: bytes, open_file: Callable[[str], T]
) -> tuple[T, int | None]:
    with ObjectCache(tools).scratch() as folder:
        return _from_folder(image, folder, open_file)


def _from_temporary(
    tools: Toolchain, image: bytes, open_file: Callable[[str], T]
) -> tuple[T, int | None]:
    with tempfile.TemporaryDirectory() as folder:
        return _from_folder(image, Path(folder), open_file)


def _from_folder(
    image: bytes, folder: Path, open_file: Callable[[str], T]
) -> tuple[T, int | None]:
    path = folder / "program.so"
    path.write_bytes(image)
    return open_file(str(path)), None


def _from_memory(
    tools: Toolchain, image: bytes, open_file: Callable[[str], T]
) -> tuple[T, int | None]:
    """Load from an anonymous file, which stays open: its name must stay unique."""
    descriptor = os.memfd_create("retape")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(image)
        return open_file(f"/proc/self/fd/{descriptor}"), descriptor
    except (OSError, ImportError):
        os.close(descriptor)
        raise

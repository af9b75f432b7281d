"""An object into this process, from a file that is removed at once.

An object that is loaded twice must not share its state, so each is loaded from a file
of its own, where files may be executed: in the cache, or where temporary ones go.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from retape._errors import UnsupportedError
from retape._native_code._object_cache import ObjectCache
from retape._native_code._toolchain import Toolchain

T = TypeVar("T")


def load(tools: Toolchain, image: bytes, open_file: Callable[[str], T]) -> T:
    """Load an object.

    Args:
        tools: What it was built with.
        image: The object.
        open_file: What loads a file of this name.

    Returns:
        What `open_file` has returned.

    Raises:
        UnsupportedError: If it cannot be loaded from either place.
    """
    reason = ""
    for folder in (ObjectCache(tools).scratch, tempfile.TemporaryDirectory):
        try:
            with folder() as name:
                path = Path(name) / "program.so"
                path.write_bytes(image)
                return open_file(str(path))
        except (OSError, ImportError, UnsupportedError) as error:
            reason = reason or str(error)
    raise UnsupportedError(
        f"the compiled object cannot be loaded ({reason}); set `$RETAPE_CACHE` to a "
        "folder that can be written and from which programs may be executed, or "
        f"{tools.instead}."
    )

"""Where a user's caches are, for everything of this library that keeps some."""

import os
import tempfile
from pathlib import Path


def user_cache() -> Path:
    """`retape` in `$XDG_CACHE_HOME`, or in `.cache` of the home folder."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else _home() / ".cache") / "retape"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a user without an entry in the system's list
        return Path(tempfile.gettempdir()) / f"retape-{os.getpid()}"

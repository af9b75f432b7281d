"""`warn`: a `RetapeWarning` that points at the user's own line."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from retape._errors import RetapeWarning

_OURS = str(Path(__file__).parent)
_LIBRARIES = (
    "jax", "flax", "equinox", "torch", "transformers", "accelerate", "lightning",
    "functools", "contextlib",
)  # fmt: skip
"""Packages whose frames stand between the user's line and ours."""


def warn(message: str) -> None:
    """Warn as if the nearest line of the user's code had.

    Python's `skip_file_prefixes` is not in the oldest release that is supported.
    """
    depth, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _is_between(frame.f_code.co_filename, frame):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, RetapeWarning, stacklevel=depth)


def _is_between(file: str, frame: object) -> bool:
    module = getattr(frame, "f_globals", {}).get("__name__", "")
    return file.startswith(_OURS) or module.split(".")[0] in _LIBRARIES

"""The PyTorch engine: a recorded graph of operations, run again piece by piece."""

import warnings

from retape._extras import require

require("torch", "torch", "numpy")

from torch import __version__ as _release  # noqa: E402

TRIED = ("2.11", "2.12", "2.13", "2.14", "2.15")
"""Releases of PyTorch with which all tests were run."""


def is_tried(release: str) -> bool:
    """Whether all tests were run with a release of PyTorch."""
    return release.startswith(tuple(f"{each}." for each in TRIED))


def warn_if_untried(release: str) -> None:
    """Warn of a release of PyTorch whose private parts may differ from those tried."""
    if not is_tried(release):
        warnings.warn(
            f"`retape.torch` was tried with PyTorch {', '.join(TRIED)} and not with "
            f"{release}. It relies on parts of PyTorch that no promise covers: compare "
            "a gradient with the plain one first, or pass `verify=True`.",
            stacklevel=2,
        )


warn_if_untried(str(_release))

"""Imported first: says what to install where JAX is missing, or too old."""

from retape._errors import MissingPackageError
from retape._extras import install_line, require

OLDEST = (0, 10)
"""The oldest release of JAX with which the whole suite passes: with 0.9.2 24 of 198
tests of the passes fail."""


def check_release(version: str, release: tuple[int, ...]) -> None:
    """Refuse a release of JAX that is known not to do.

    One that is newer than all that were tried is accepted, and `explain` says so.

    Args:
        version: As it is printed.
        release: The same as numbers.

    Raises:
        MissingPackageError: If it is too old.
    """
    if release[:2] < OLDEST:
        least = ".".join(map(str, OLDEST))
        raise MissingPackageError(
            f"JAX {version} is installed, and `retape.jax` needs {least} or later: "
            "older ones write programs in a way that it was not made for. Run "
            f"`{install_line('jax')}`, or `pip install --upgrade jax`.",
            name="jax",
        )


require("jax", "jax", "numpy", "scipy")

import jax  # noqa: E402  # known to be there now

check_release(jax.__version__, jax.__version_info__)

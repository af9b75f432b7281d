"""Releases of JAX that are too old are refused when the engine is imported."""

import subprocess
import sys

import pytest

PROGRAM = """
import jax
jax.__version__ = {version!r}
jax.__version_info__ = tuple(map(int, {version!r}.split(".")))
try:
    # Before any module reads what such a release has not.
    import retape.jax
except ImportError as error:
    print(type(error).__name__, error.name, error)
"""


def said(version: str) -> str:
    """What the import says under a release of JAX."""
    command = [sys.executable, "-c", PROGRAM.format(version=version)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_an_old_release_is_refused_with_what_to_do() -> None:
    found = said("0.9.2")
    assert found.startswith("MissingPackageError jax JAX 0.9.2 is installed, and")
    assert "needs 0.10 or later" in found and "pip install --upgrade jax" in found


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.10.0", "0.12.0.1", "1.0.0"])
def test_all_others_are_accepted(version: str) -> None:
    assert said(version) == ""

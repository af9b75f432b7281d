"""Releases of JAX that are too old are refused when the engine is imported."""

import subprocess
import sys

import pytest

from retape import MissingPackageError
from retape.engines.jaxpr._require_jax import check_release


def test_an_old_release_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        MissingPackageError, match=r"JAX 0\.9\.2 is installed, and"
    ) as e:
        check_release("0.9.2", (0, 9, 2))
    assert "needs 0.10 or later" in str(e.value)
    assert "pip install --upgrade jax" in str(e.value)
    assert isinstance(e.value, ImportError) and e.value.name == "jax"


@pytest.mark.parametrize("version", ["0.10.0", "0.12.0.1", "0.13.0", "1.0.0"])
def test_all_others_are_accepted(version: str) -> None:
    check_release(version, tuple(map(int, version.split("."))))


def test_it_is_said_at_the_import() -> None:
    """Before any module reads what such a release has not."""
    program = (
        "import jax\n"
        "jax.__version__, jax.__version_info__ = '0.9.2', (0, 9, 2)\n"
        "try:\n"
        "    import retape.jax\n"
        "except ImportError as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith("MissingPackageError JAX 0.9.2 is installed")

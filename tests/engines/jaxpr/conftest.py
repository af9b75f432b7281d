"""Double precision for every test, and a fixture that opens scans of any size."""

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
pytest.importorskip("jax")

import jax  # noqa: E402

from tests.engines.jaxpr.support import seams  # noqa: E402


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    """What an earlier test made the engine believe is forgotten."""
    seams.forget()


@pytest.fixture
def opened() -> Iterator[None]:
    """Every scan is opened, as one whose residuals are large would be."""
    with seams.finely():
        yield

"""Double precision for every test of NNX layers."""

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
pytest.importorskip("flax")

import jax  # noqa: E402


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield

"""Double precision for who asks for it; the packages' own warnings are not ours."""

import os
import warnings
from collections.abc import Iterator

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax")

with warnings.catch_warnings():
    # What these packages say of JAX's new names when they are loaded.
    warnings.simplefilter("ignore")
    for name in ("equinox", "diffrax", "optimistix"):
        pytest.importorskip(name)


@pytest.fixture
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield

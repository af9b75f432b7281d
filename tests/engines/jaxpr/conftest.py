"""Double precision for every test, and a fixture that opens scans of any size."""

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
pytest.importorskip("jax")

import functools  # noqa: E402

import jax  # noqa: E402

from retape.engines.jaxpr._pipeline import compile_program  # noqa: E402
from retape.engines.jaxpr.calls import _rules as _primitives  # noqa: E402
from retape.engines.jaxpr.jaxprs._caches import forget  # noqa: E402


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    """What an earlier test made the engine believe is forgotten."""
    forget()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every scan is opened, as one whose residuals are large would be."""
    anyhow = functools.partial(compile_program, grain=0)
    monkeypatch.setattr(_primitives, "compile_program", anyhow)

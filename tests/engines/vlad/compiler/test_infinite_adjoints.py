"""Cotangents that are no numbers: of infinite adjoints, or of a skipped zero."""

import math
from typing import Any

import pytest

from retape import native
from tests.engines.vlad.support.cases import ENGINES


def chaotic(x, r, steps):  # type: ignore[no-untyped-def]
    """An adjoint that overflows; what it is multiplied by never does."""
    for _ in range(steps):
        x = r * x * (1.0 - x)
    return x


def clipped(x, z):  # type: ignore[no-untyped-def]
    """Where x * x is infinite, the adjoint of the product is zero."""
    return min(x * x * z, 1.0) + 0.0 * z


def rooted(x, z):  # type: ignore[no-untyped-def]
    return min(math.sqrt(x) * z + 2.0, 1.0)


def scaled(x):  # type: ignore[no-untyped-def]
    return min(x * math.inf + 5.0, 1.0)


@pytest.mark.parametrize("engine", ENGINES)
def test_infinite_adjoints_are_no_numbers_in_any_engine(engine: Any) -> None:
    gradient = native.grad(chaotic, (0, 1), engine=engine)
    assert all(map(math.isfinite, gradient(0.3, 3.9, 1_400)))
    assert all(map(math.isnan, gradient(0.3, 3.9, 3_000)))


@pytest.mark.parametrize("engine", ENGINES)
def test_an_adjoint_of_zero_is_not_multiplied_by_an_infinite_partial(
    engine: Any,
) -> None:
    assert native.grad(clipped, (0, 1), engine=engine)(1e200, 2.0) == (0.0, 0.0)
    assert native.grad(rooted, (0, 1), engine=engine)(0.0, 2.0) == (0.0, 0.0)
    assert native.grad(scaled, engine=engine)(3.0) == 0.0

"""Cotangents at the edges of numbers: infinite ones, and zeros that are skipped.

Zero adjoints are not propagated, in whichever engine; so an infinite slope of what does
not matter is no number of it.
"""

import math
from typing import Any

import numpy as np
import pytest

from retape import native
from tests.engines.vlad.python.test_whole_arrays import arrays_of
from tests.engines.vlad.support.cases import ENGINES

# pyright: basic


def chaotic(x, r, steps):
    """An adjoint that overflows; what it is multiplied by never does."""
    for _ in range(steps):
        x = r * x * (1.0 - x)
    return x


def clipped(x, z):
    """Where x * x is infinite, the adjoint of the product is zero."""
    return min(x * x * z, 1.0) + 0.0 * z


def rooted(x, z):
    return min(math.sqrt(x) * z + 2.0, 1.0)


def scaled(x, z):
    return min(x * math.inf + 5.0, z)


def power_or_remainder(x, y, power):
    return x**y if power else x % y


def length(x, y):
    return math.hypot(x, y)


def of_arrays(a, b):
    c = np.sqrt(a) * b + np.log(np.abs(b))
    return np.sum(c * b)


NAN = math.nan
ROWS: list[tuple[Any, tuple[Any, ...], tuple[float, float] | None]] = [
    (chaotic, (0.3, 3.9, 3_000), (NAN, NAN)),
    (chaotic, (0.3, 3.9, 1_400), None),
    (clipped, (1e200, 2.0), (0.0, 0.0)),
    (rooted, (0.0, 2.0), (0.0, 0.0)),
    (scaled, (3.0, 1.0), (0.0, 1.0)),
    (power_or_remainder, (-0.0, 0.5, True), None),
    (power_or_remainder, (-0.0, 3.0, True), None),
    (power_or_remainder, (-2.0, 3.0, True), (12.0, NAN)),
    (power_or_remainder, (1.0, 5e-324, False), None),
    (power_or_remainder, (math.inf, 2.0, False), None),
    (power_or_remainder, (1.0, -math.inf, False), None),
    *((length, (3.0 * h, -4.0 * h), (0.6, -0.8)) for h in (1.0, 1e-200, 1e200)),
    (length, (0.0, 0.0), (0.0, 0.0)),
]


@pytest.mark.parametrize("f", dict.fromkeys(row[0] for row in ROWS))
def test_numbers_at_the_edges_have_the_same_gradient_in_any_engine(f: Any) -> None:
    gradients = [native.grad(f, (0, 1), engine=engine) for engine in ENGINES]
    for _, args, wanted in (row for row in ROWS if row[0] is f):
        found = [gradient(*args) for gradient in gradients]
        assert len(set(map(repr, found))) == 1, args
        if wanted is None:
            assert f is not chaotic or all(map(math.isfinite, found[0]))
        else:
            assert found[0] == pytest.approx(wanted, nan_ok=True, rel=1e-15), args


@pytest.mark.parametrize("share", [0.2, 0.6])
def test_arrays_of_edges_have_the_same_gradient_in_any_engine(share: float) -> None:
    gradients = [native.grad(of_arrays, (0, 1), engine=engine) for engine in ENGINES]
    for seed in range(8):
        a, b = arrays_of((9,), seed, share)
        first, *others = (gradient(np.abs(a), b) for gradient in gradients)
        for parts in others:
            for part, expected in zip(parts, first, strict=True):
                assert np.allclose(part, expected, rtol=1e-12, equal_nan=True)

"""`a @ b`: one operation, whose reverse takes the factors as they were."""

import itertools
from typing import Any

import numpy as np
import pytest

from retape import native
from tests.engines.vlad.support.cases import ENGINES

SHAPES = [
    ((4,), (4,)),
    ((3, 4), (4,)),
    ((4,), (4, 5)),
    ((9, 17), (17, 11)),
    ((5, 1), (1, 26)),
    ((1, 30), (30, 1)),
    ((30,), (30,)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 3)),
    ((0,), (0,)),
]


def plain(a, b):  # type: ignore[no-untyped-def]
    return a @ b


def summed(a, b):  # type: ignore[no-untyped-def]
    c = a @ b
    return np.sum(np.sin(c) * c)


def one(a, b):  # type: ignore[no-untyped-def]
    c = a @ b
    return np.sin(c) * c


def slope(c: np.ndarray) -> np.ndarray:
    return np.cos(c) * c + np.sin(c)


def factors(*shapes: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.normal(size=shape) for shape in shapes]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_values_are_numpys_and_gradients_two_products(shapes: tuple) -> None:
    a, b = factors(*shapes)
    f = summed if (a @ b).ndim else one
    found = [
        native.value_and_grad(f, (0, 1), engine=engine)(a, b) for engine in ENGINES
    ]
    g = slope(a @ b)
    if a.ndim == 1 == b.ndim:
        left, right = g * b, g * a
    else:
        left, right = (
            _as_matrix(g, a, b) @ _right(b).T,
            _left(a).T @ _as_matrix(g, a, b),
        )
    for value, (da, db) in found:
        assert value == found[0][0]
        assert np.isclose(value, f(a, b))
        assert np.allclose(da, left.reshape(a.shape), rtol=1e-12)
        assert np.allclose(db, right.reshape(b.shape), rtol=1e-12)


def _left(a: np.ndarray) -> np.ndarray:
    return a if a.ndim == 2 else a[None, :]


def _right(b: np.ndarray) -> np.ndarray:
    return b if b.ndim == 2 else b[:, None]


def _as_matrix(g: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return g.reshape(_left(a).shape[0], _right(b).shape[1])


@pytest.mark.parametrize("columns", [1, 2, 8, 13, 24, 25])
def test_all_implementations_give_the_same_bits(columns: int) -> None:
    """Sizes on both sides of a tile's, and more products than one pack has."""
    for rows, inner in itertools.product((1, 3, 4, 9), (1, 8, 15, 257)):
        a, b = factors((rows, inner), (inner, columns))
        found = [native.function(plain, engine=e)(a, b) for e in ENGINES]
        assert all(np.array_equal(each, found[0]) for each in found)
        assert np.allclose(found[0], a @ b, rtol=1e-12)
        if columns > 1:
            total = np.zeros((rows, columns))
            for k in range(inner):
                total += np.outer(a[:, k], b[k])
            assert np.array_equal(found[2], total)


def curved(x, a):  # type: ignore[no-untyped-def]
    y = a @ (x * x)
    return np.tanh(y) @ (x @ a)


slope_of_curved = native.grad(curved)


def along(x, a, d):  # type: ignore[no-untyped-def]
    return slope_of_curved(x, a) @ d


@pytest.mark.parametrize("engine", ENGINES)
def test_second_derivatives_of_products(engine: Any) -> None:
    x, a, direction = factors((3,), (3, 3), (3,), seed=7)
    found = native.grad(along, engine=engine)(x, a, direction)
    steps = [slope_of_curved(x + h * direction, a) for h in (1e-5, -1e-5)]
    assert np.allclose(found, (steps[0] - steps[1]) / 2e-5, rtol=1e-6, atol=1e-8)
    _, forward = native.jvp(slope_of_curved, (x, a), (direction, np.zeros((3, 3))))
    assert np.allclose(found, forward, rtol=1e-10)

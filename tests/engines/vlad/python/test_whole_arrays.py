"""`a + h * b` and `a @ b` on arrays: one operator, of which a reverse is others.

Python and NumPy run the same functions: of what IEEE arithmetic rounds, in every bit.
"""

import itertools
import math
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from retape import native
from tests.engines.vlad.support.cases import ENGINES
from tests.engines.vlad.support.seams import compile_with
from tests.judges.vlad.corpus import named_twice, whole_arrays

# pyright: basic


def rounded(a, b, h, k):
    """What IEEE arithmetic defines in every bit."""
    c = a + h * b - 2 * a / 4.0
    d = (c - b) * (-a) + k * c**2 - np.abs(1 - b)
    return np.sqrt(d * d + 3) * a - (1.5 - d) * h + k


ROUNDED = [native.function(rounded, engine=engine) for engine in ENGINES]
GRADIENTS = [
    native.value_and_grad(whole_arrays, (0, 1, 2), engine=engine) for engine in ENGINES
]

SHAPES = [(0,), (1,), (2,), (7,), (64,), (131,), (0, 3), (1, 1), (3, 5), (17, 2)]
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1e-310, 1.0, -2.5, 1e200]


def arrays_of(shape: tuple[int, ...], seed: int, share: float) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    found = [generator.uniform(-2, 2, shape) for _ in range(2)]
    for each in found:
        where = generator.random(shape) < share
        each[where] = generator.choice(SPECIAL, shape)[where]
    return found


cases = given(
    st.sampled_from(SHAPES),
    st.integers(0, 1000),
    st.sampled_from([0.0, 0.3]),
    st.integers(-3, 3),
)


@cases
@settings(max_examples=12, deadline=None)
def test_values_are_numpys(shape, seed, share, k) -> None:
    a, b = arrays_of(shape, seed, share)
    with np.errstate(all="ignore"):
        expected = rounded(a, b, 0.3, k)
    for f in ROUNDED:
        found = f(a, b, 0.3, k)
        assert found.shape == shape
        assert np.array_equal(found, expected, equal_nan=True)


@pytest.mark.slow
@cases
@settings(max_examples=12, deadline=None)
def test_gradients_agree_with_one_another_and_with_differences(
    shape, seed, share, k
) -> None:
    a, b = arrays_of(shape, seed, 0.0)
    h, step = 0.3, 1e-6
    (value, parts), *others = (gradient(a, b, h, k) for gradient in GRADIENTS)
    assert np.isclose(value, whole_arrays(a, b, h, k), rtol=1e-12)
    for other, found in others:
        assert other == value
        for part, expected in zip(found, parts, strict=True):
            assert np.allclose(part, expected, rtol=1e-9, atol=1e-9)
    u, v = arrays_of(shape, seed + 1, 0.0)
    da, db, dh = parts
    slope = np.sum(da * u) + np.sum(db * v) + dh * 0.7
    ends = [whole_arrays(a + s * u, b + s * v, h + s * 0.7, k) for s in (step, -step)]
    assert np.isclose(slope, (ends[0] - ends[1]) / (2 * step), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_dead_rows_are_swept_whenever_a_slice_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = ("-DSLICE=30", "-DROW_SLACK=((size_t)0)", "-DPAUSE_SECONDS=0")
    compile_with(monkeypatch, *short)
    rows: list[tuple[Any, tuple[Any, ...]]] = [
        (whole_arrays, (*arrays_of((33,), 5, 0.0), 0.3, 8)),
        (named_twice, (np.array([0.3, -0.7, 1.1]), 40)),
    ]
    for f, args in rows:
        swept, other = (
            native.value_and_grad(f, engine=engine)(*args)
            for engine in ("compiled", "hybrid")
        )
        assert swept[0] == other[0]
        assert np.allclose(swept[1], other[1], rtol=1e-9)


FACTORS = [
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


def plain(a, b):
    return a @ b


def summed(a, b):
    c = a @ b
    return np.sum(np.sin(c) * c)


def one(a, b):
    c = a @ b
    return math.sin(c) * c


def factors(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.normal(size=shape) for shape in shapes]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_product_has_the_gradient_of_pytorch(engine: Any) -> None:
    """It takes the factors as they were."""
    scalar, others = (
        native.value_and_grad(f, (0, 1), engine=engine) for f in (one, summed)
    )
    for shapes in FACTORS:
        a, b = factors(*shapes)
        value, found = (others if (a @ b).ndim else scalar)(a, b)
        inputs = [torch.tensor(each, requires_grad=True) for each in (a, b)]
        c = inputs[0] @ inputs[1]
        expected = (torch.sin(c) * c).sum()
        assert np.isclose(value, expected.item(), rtol=1e-12), shapes
        for part, wanted in zip(
            found, torch.autograd.grad(expected, inputs), strict=True
        ):
            assert np.allclose(part, wanted.numpy(), rtol=1e-12, atol=1e-14), shapes


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

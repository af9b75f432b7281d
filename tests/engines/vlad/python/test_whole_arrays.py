"""`a + h * b` on arrays: one operator and one loop, of which a reverse is others.

Python and NumPy run the same functions: of what IEEE arithmetic rounds, in every bit.
"""

import math
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import retape
from retape import native
from tests.engines.vlad.support.cases import ENGINES
from tests.engines.vlad.support.seams import compile_with
from tests.judges.vlad.corpus import named_twice


def rounded(a, b, h, k):  # type: ignore[no-untyped-def]
    """What IEEE arithmetic defines in every bit."""
    c = a + h * b - 2 * a / 4.0
    d = (c - b) * (-a) + k * c**2 - np.abs(1 - b)
    return np.sqrt(d * d + 3) * a - (1.5 - d) * h + k


def smooth(a, b, h, k):  # type: ignore[no-untyped-def]
    """Every kind of operator; an array that is changed after its use; a shared one."""
    c = np.sin(a) * b + h
    d = np.exp(-c * c) / (2.0 + np.cos(b))
    e = (a * a + 1.0) ** 1.5 - 2.0 ** (0.1 * b) + np.log(3.0 + a * a)
    f = c
    for i in range(k):
        c = c + 0.1 * d * i - h * np.tanh(c)
    return (d * e + f * c) / (1.0 + c * c) - np.sqrt(a * a + b * b + 0.5)


def total(a, b, h, k):  # type: ignore[no-untyped-def]
    c = smooth(a, b, h, k)
    return np.sum(c * c) + (a * h - b).sum() - c.sum()


COMPILED = {
    f: [native.function(f, engine=engine) for engine in ENGINES]
    for f in (rounded, smooth, total)
}
GRADIENTS = [native.grad(total, (0, 1, 2), engine=engine) for engine in ENGINES]

SHAPES = [(0,), (1,), (2,), (7,), (64,), (131,), (0, 3), (1, 1), (3, 5), (17, 2)]
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1e-310, 1.0, -2.5]


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


@pytest.mark.slow
@cases
@settings(max_examples=25, deadline=None)
def test_values_are_numpys(shape, seed, share, k) -> None:  # type: ignore[no-untyped-def]
    a, b = arrays_of(shape, seed, share)
    with np.errstate(all="ignore"):
        for f, exact in ((rounded, True), (smooth, False)):
            if f is smooth and share:
                continue  # a power and a quotient may be faults
            found = [each(a, b, 0.3, k) for each in COMPILED[f]]
            assert all(np.array_equal(each, found[0], equal_nan=True) for each in found)
            expected = f(a, b, 0.3, k)
            assert found[0].shape == shape
            if exact:
                assert np.array_equal(found[0], expected, equal_nan=True)
            assert np.allclose(found[0], expected, rtol=1e-12, equal_nan=True)


@pytest.mark.slow
@cases
@settings(max_examples=12, deadline=None)
def test_gradients_agree_with_one_another_and_with_differences(  # type: ignore[no-untyped-def]
    shape, seed, share, k
) -> None:
    a, b = arrays_of(shape, seed, 0.0)
    h, step = 0.3, 1e-6
    found = [gradient(a, b, h, k) for gradient in GRADIENTS]
    for parts in found[1:]:
        for part, expected in zip(parts, found[0], strict=True):
            assert np.allclose(part, expected, rtol=1e-9, atol=1e-9)
    u, v = arrays_of(shape, seed + 1, 0.0)
    da, db, dh = found[0]
    slope = np.sum(da * u) + np.sum(db * v) + dh * 0.7
    ends = [total(a + s * u, b + s * v, h + s * 0.7, k) for s in (step, -step)]
    assert np.isclose(slope, (ends[0] - ends[1]) / (2 * step), rtol=1e-4, atol=1e-4)


def infinite(a, b):  # type: ignore[no-untyped-def]
    c = np.sqrt(a) * b + np.log(np.abs(b))
    return np.sum(c * b)


@pytest.mark.parametrize("share", [0.2, 0.6])
def test_an_infinite_slope_of_what_does_not_matter_is_no_number_of_it(share) -> None:  # type: ignore[no-untyped-def]
    """Zero adjoints are not propagated, in whichever engine."""
    for seed in range(8):
        a, b = arrays_of((9,), seed, share)
        found = [
            native.grad(infinite, (0, 1), engine=engine)(np.abs(a), b)
            for engine in ENGINES
        ]
        for parts in found[1:]:
            for part, expected in zip(parts, found[0], strict=True):
                assert np.allclose(part, expected, rtol=1e-12, equal_nan=True)


def second(a, b):  # type: ignore[no-untyped-def]
    return np.sum(np.sin(a * b) * a**3 / (1.0 + b * b))


slopes = native.grad(second, (0, 1))


def along(a, b, u, v):  # type: ignore[no-untyped-def]
    da, db = slopes(a, b)
    return da @ u + np.sum(db * v)


@pytest.mark.parametrize("engine", ENGINES)
def test_derivatives_of_derivatives(engine: Any) -> None:
    (a, b), (u, v) = arrays_of((5,), 1, 0.0), arrays_of((5,), 2, 0.0)
    da, db = native.grad(along, (0, 1), engine=engine)(a, b, u, v)
    step = 1e-5
    ends = [slopes(a + s * u, b + s * v) for s in (step, -step)]
    for part, (up, down) in zip((da, db), zip(*ends, strict=True), strict=True):
        assert np.allclose(part, (up - down) / (2 * step), rtol=1e-6, atol=1e-8)
    gradient = native.grad(second, (0, 1), engine=engine)
    _, forward = native.jvp(gradient, (a, b), (u, v))
    assert np.allclose(forward[0], da, rtol=1e-10)
    assert np.allclose(forward[1], db, rtol=1e-10)


@pytest.mark.slow
def test_dead_rows_are_swept_whenever_a_slice_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b = arrays_of((33,), 5, 0.0)
    expected = GRADIENTS[0](a, b, 0.3, 8)
    short = ("-DSLICE=30", "-DROW_SLACK=((size_t)0)", "-DPAUSE_SECONDS=0")
    compile_with(monkeypatch, *short)
    found = native.grad(total, (0, 1, 2))(a, b, 0.3, 8)
    for part, other in zip(found, expected, strict=True):
        assert np.allclose(part, other, rtol=1e-9)
    three = np.array([0.3, -0.7, 1.1])
    swept, others = (
        native.value_and_grad(named_twice, engine=engine)(three, 40)
        for engine in ("compiled", "hybrid")
    )
    assert swept[0] == others[0]
    assert np.allclose(swept[1], others[1], rtol=1e-9)


def test_what_is_passed_may_be_a_view_or_of_ints() -> None:
    base = np.arange(24.0).reshape(4, 6) / 7
    columns, every = base.T[1:4, ::2], base[::2, :3]
    args = columns, np.asfortranarray(columns), 0.5, 2
    assert np.array_equal(COMPILED[rounded][2](*args), rounded(*args))
    line = base[:, 1][::-1], every[0, :1].repeat(4), 0.5, 2
    assert np.array_equal(COMPILED[rounded][2](*line), rounded(*line))
    same = native.grad(total, (0, 1))(base, base, 0.5, 2)
    apart = native.grad(total, (0, 1))(base, base.copy(), 0.5, 2)
    assert all(map(np.array_equal, same, apart))


def quotient(a, b):  # type: ignore[no-untyped-def]
    return np.sum(a + 1.0 - a / b)


def power(a, b):  # type: ignore[no-untyped-def]
    return np.sum(a * a**b)


def uneven(a, b):  # type: ignore[no-untyped-def]
    return np.sum(a * 2.0 + (a - b) * a)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("f", "b", "message", "place"),
    [
        (quotient, np.array([1.0, 0.0]), "division by zero", "a / b"),
        (power, np.array([1.0, 2000.0]), "math domain or range error", "a**b"),
        (uneven, np.ones(3), "the lengths of two arrays differ", "a - b"),
        (uneven, np.ones((1, 3)), "the shapes of two arrays differ", "a - b"),
    ],
)
def test_faults_stop_at_their_place(f, b, message, place, engine) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(retape.RetapeError) as caught:
        native.grad(f, engine=engine)(np.array([3.0, 4.0]), b)
    _, line, caret, *_ = str(caught.value).splitlines()
    assert message in str(caught.value)
    at = caret.index("^")
    assert line[at:].startswith(place) or line[at - 1 :].startswith(f"({place}")


def test_no_item_is_no_fault() -> None:
    empty = np.ones(0)
    assert native.function(quotient)(empty, empty) == 0.0
    assert native.grad(lambda x, a: np.sum(a / x))(0.0, empty) == 0.0


def in_order(a, b):  # type: ignore[no-untyped-def]
    return (a * b) + np.ones(int(1.0 / b[0]))


@pytest.mark.parametrize("engine", ENGINES)
def test_of_two_faults_the_first_counts(engine: Any) -> None:
    f = native.function(in_order, engine=engine)
    with pytest.raises(native.RunError, match="lengths of two arrays"):
        f(np.ones(2), np.zeros(3))
    with pytest.raises(native.RunError, match="division by zero"):
        f(np.ones(2), np.zeros(2))


def test_a_square_of_an_array_is_a_product() -> None:
    """As NumPy's, and infinite where that is."""
    f = native.function(lambda a: a**2)
    a = np.random.default_rng(0).normal(size=1000) * 1e3
    assert np.array_equal(f(a), a * a)
    assert f(np.array([1e200]))[0] == math.inf


def long_sum(a, b, h):  # type: ignore[no-untyped-def]
    c = a + h * b + a * 2.0 + b * h * h - a / 3.0 + (h + 1.0) * b + (h + 2.0) * a
    d = c * h + (h - 1.0) * c + (h - 2.0) * a + (h - 3.0) * b - (h - 4.0) * c * b
    return np.sum(d + (h - 5.0) * a + (h - 6.0) * c - (h - 7.0) * b)


def test_expressions_of_many_operands_are_several_operators() -> None:
    a, b = arrays_of((11,), 3, 0.0)
    found = [
        native.value_and_grad(long_sum, (0, 1, 2), engine=engine)(a, b, 0.7)
        for engine in ENGINES
    ]
    assert np.isclose(found[0][0], long_sum(a, b, 0.7), rtol=1e-12)
    for value, parts in found:
        assert value == found[0][0]
        for part, expected in zip(parts, found[0][1], strict=True):
            assert np.allclose(part, expected, rtol=1e-12)
    ends = [long_sum(a, b, 0.7 + s) for s in (1e-6, -1e-6)]
    assert np.isclose(found[0][1][2], (ends[0] - ends[1]) / 2e-6, rtol=1e-7)

"""`a @ b`: one operation, whose reverse takes the factors as they were."""

import itertools

import numpy as np
import pytest

import retape
from retape import native
from retape.engines.vlad.session._engines import EngineName
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


def powers(a, n):  # type: ignore[no-untyped-def]
    """Both factors are one array, which is assigned to afterwards."""
    a = a.copy()
    total = 0.0
    for i in range(n):
        b = a @ a
        kept = a
        v = b @ np.ones(2)
        a = a.copy()
        a[0, 1] = 0.3 * np.sin(b[1, 0]) + 0.1 * v[0]
        a[1, 0] = 0.5 * a[1, 0] + 0.01 * i
        w = kept[0, 0] * v
        v[1] = v[1] * 0.5
        total += v[1] + v @ w + kept[0, 1]
    return total


def in_numpy(f, *args):  # type: ignore[no-untyped-def]
    """Central differences of a function that Python runs."""
    (a, *rest) = args
    found, step = np.zeros(a.shape), 1e-6
    for at in np.ndindex(a.shape):
        moved = [a.copy(), a.copy()]
        moved[0][at] += step
        moved[1][at] -= step
        found[at] = (f(moved[0], *rest) - f(moved[1], *rest)) / (2 * step)
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_a_factor_may_be_assigned_to_after_its_product(engine: EngineName) -> None:
    (a,) = factors((2, 2), seed=3)
    value, slope_of_a = native.value_and_grad(powers, engine=engine)(0.5 * a, 6)
    assert np.isclose(value, powers(0.5 * a, 6), rtol=1e-13)
    assert np.allclose(slope_of_a, in_numpy(powers, 0.5 * a, 6), rtol=1e-6, atol=1e-8)


def overwritten(a, n):  # type: ignore[no-untyped-def]
    """One array that is written in place between products, as a program would."""
    w = np.zeros(3)
    s = 0.0
    for i in range(3):
        w[i] = a[i]
    for k in range(n):
        s += w @ a
        w[k % 3] = 0.9 * w[k % 3] + 0.1 * np.sin(s)
    return s


@pytest.mark.parametrize(
    "plan", [None, retape.logarithmic(stage=40), retape.within(4_000)]
)
def test_states_between_products_hold_what_the_reverse_takes(plan) -> None:  # type: ignore[no-untyped-def]
    (a,) = factors((3,), seed=5)
    gradient = native.grad(overwritten, plan=plan)
    found = gradient(a, 40)
    assert np.allclose(found, in_numpy(overwritten, a, 40), rtol=1e-6)
    assert np.array_equal(found, gradient(a, 40))
    (engine,) = (made.engine for made in gradient._made.values())
    done, given_up = engine.native.typed_stages()  # type: ignore[attr-defined]
    assert done > given_up  # each gradient is tried as one stage first
    other = native.grad(overwritten, engine="interpreter")(a, 40)
    assert np.allclose(found, other, rtol=1e-12)


def curved(x, a):  # type: ignore[no-untyped-def]
    y = a @ (x * x)
    return np.tanh(y) @ (x @ a)


slope_of_curved = native.grad(curved)


def along(x, a, d):  # type: ignore[no-untyped-def]
    return slope_of_curved(x, a) @ d


@pytest.mark.parametrize("engine", ENGINES)
def test_second_derivatives_of_products(engine: EngineName) -> None:
    x, a, direction = factors((3,), (3, 3), (3,), seed=7)
    found = native.grad(along, engine=engine)(x, a, direction)
    steps = [slope_of_curved(x + h * direction, a) for h in (1e-5, -1e-5)]
    assert np.allclose(found, (steps[0] - steps[1]) / 2e-5, rtol=1e-6, atol=1e-8)
    _, forward = native.jvp(slope_of_curved, (x, a), (direction, np.zeros((3, 3))))
    assert np.allclose(found, forward, rtol=1e-10)


@pytest.mark.parametrize(
    "shapes", [((3,), (4,)), ((3, 4), (3,)), ((3,), (4, 3)), ((3, 4), (3, 4))], ids=str
)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_does_not_fit_stops_at_the_line(shapes: tuple, engine: EngineName) -> None:
    a, b = factors(*shapes)
    with pytest.raises(retape.RetapeError) as caught:
        native.function(plain, engine=engine)(a, b)
    assert "the lengths of two arrays differ" in str(caught.value)
    assert "return a @ b" in str(caught.value)


def test_a_tape_has_rows_and_not_their_products() -> None:
    """Eight times the multiplications, and four times the items, of which rows are."""

    def squared(a, b):  # type: ignore[no-untyped-def]
        c = a @ b
        return c[0, 0] + c[1, 1]

    gradient = native.grad(squared, (0, 1))
    taken = [_bytes_of(gradient, *factors((n, n), (n, n))) for n in (32, 64)]
    assert taken[1] - taken[0] < 256 * (64**2 - 32**2)


def _bytes_of(gradient, *args) -> int:  # type: ignore[no-untyped-def]
    """What the runtime took from the system, at most."""
    gradient(*args)
    (made,) = gradient._made.values()
    return made.engine.native.call("census").u


def chain(w, x, n):  # type: ignore[no-untyped-def]
    for _ in range(n):
        x = x @ w
    return x[0, 0]


def test_a_stage_is_shorter_where_products_fill_the_memory() -> None:
    """1,200 products of 32 kB are few steps; 40 MB in one stage."""
    w, x = factors((64, 64), (64, 64))
    w /= 8.0
    gradient = native.grad(chain)
    whole = native.grad(chain, plan=retape.logarithmic(stage=10**9))
    assert _bytes_of(gradient, w, x, 1_200) < 30e6
    assert _bytes_of(whole, w, x, 1_200) > 39e6
    assert np.allclose(gradient(w, x, 1_200), whole(w, x, 1_200), rtol=1e-9)

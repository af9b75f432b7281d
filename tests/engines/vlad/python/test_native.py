"""Compiled functions: derivatives within functions, layouts of arrays, a decorator."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retape import fixed_space, native
from tests.engines.vlad.support.cases import ENGINES
from tests.judges.vlad.corpus import long_loop

# pyright: basic

PAIR = (lambda x: x + 1.0), (lambda x: x + 2.0)
WITHIN = lambda x: (lambda y: y * 3.0)(x) + 1.0  # noqa: E731


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
def test_functions_of_one_line_are_not_confused(engine: Any) -> None:
    for f in (*PAIR, WITHIN):
        assert native.function(f, engine=engine)(4.0) == f(4.0)


def test_the_module_is_a_decorator() -> None:
    @native  # pyright: ignore[reportCallIssue]
    def local(x):
        return x * 2.0

    assert repr(local).startswith("<native function test_the_module_is_a_decorator")
    assert local.__name__ == "local"
    assert local(4.0) == 8.0
    assert native.grad(local)(4.0) == 2.0


def cube(x):
    return x**3 * math.sin(x)


def waves(a, b):
    return np.sum(np.sin(a * b) * a**3 / (1.0 + b * b))


def products(x, a):
    y = a @ (x * x)
    return np.tanh(y) @ (x @ a)


slope_of_cube = native.grad(cube, (0,))
slopes_of_waves = native.grad(waves, (0, 1))
slopes_of_products = native.grad(products, (0, 1))


def along_cube(x, u):
    (dx,) = slope_of_cube(x)
    return dx * u


def along_waves(a, b, u, v):
    da, db = slopes_of_waves(a, b)
    return da @ u + np.sum(db * v)


def along_products(x, a, u, v):
    dx, da = slopes_of_products(x, a)
    return dx @ u + np.sum(da * v)


VECTORS = np.random.default_rng(7).uniform(-2.0, 2.0, (4, 5))
NESTED: dict[str, tuple[Any, Any, tuple[Any, ...], tuple[Any, ...]]] = {
    "numbers": (slope_of_cube, along_cube, (0.7,), (2.0,)),
    "whole arrays": (slopes_of_waves, along_waves, tuple(VECTORS[:2]), (*VECTORS[2:],)),
    "products": (
        slopes_of_products,
        along_products,
        (VECTORS[0, :3], VECTORS[:3, :3]),
        (VECTORS[1, :3], VECTORS[1:, 2:]),
    ),
}


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("engine", ENGINES)
def test_derivatives_of_derivatives(engine: Any, name: str) -> None:
    """Reverse mode over a gradient, and forward mode, against differences of it."""
    gradient, along, args, directions = NESTED[name]
    by = tuple(range(len(args)))
    found = native.grad(along, by, engine=engine)(*args, *directions)
    _, forward = native.jvp(gradient, args, directions, engine=engine)
    moved = [
        gradient(*(a + h * u for a, u in zip(args, directions, strict=True)))
        for h in (1e-5, -1e-5)
    ]
    for part, other, up, down in zip(found, forward, *moved, strict=True):
        assert np.allclose(part, (up - down) / 2e-5, rtol=1e-6, atol=1e-8)
        assert np.allclose(part, other, rtol=1e-10)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_gradient_of_a_gradient_is_made_outside_too(engine: Any) -> None:
    twice = native.grad(native.grad(cube, engine=engine), engine=engine)
    expected = 6 * 0.7 * math.sin(0.7) + 6 * 0.7**2 * math.cos(0.7)
    assert twice(0.7) == pytest.approx(expected - 0.7**3 * math.sin(0.7), rel=1e-13)


def squares(a):
    return np.sum(a * a)


def total(a):
    result = 0.0
    for x in a.ravel():
        result += x * x
    return result


@pytest.mark.parametrize("f", [squares, total])
def test_arrays_of_every_layout_are_what_they_hold(f: Any) -> None:
    base = np.arange(12.0)
    table = np.arange(24.0).reshape(4, 6) / 7
    read_only = base.copy()
    read_only.setflags(write=False)
    odd = np.frombuffer(b"\0" + base.tobytes(), dtype=float, offset=1)
    layouts = [
        *(base[::3], base[::-1], base[:0], read_only, odd, np.broadcast_to(2.0, 3)),
        *(table.T[1:4, ::2], np.asfortranarray(table), table[::2, :3], table[:, 1]),
    ]
    gradient = native.grad(f)
    for a in layouts:
        assert gradient(a).tolist() == (2.0 * a).tolist()


def product(a, b):
    return np.sum(a * b * a)


def test_an_array_that_is_given_twice_is_two() -> None:
    a = np.arange(24.0).reshape(4, 6) / 7
    gradient = native.grad(product, (0, 1))
    assert all(map(np.array_equal, gradient(a, a), gradient(a, a.copy())))


def test_a_store_keeps_a_run_that_another_call_goes_on_with(tmp_path: Path) -> None:
    derivative = native.grad(long_loop, plan=fixed_space(snapshots=4, stage=500))
    kept = derivative(0.5, 2_000, store=tmp_path)
    assert kept == derivative(0.5, 2_000)
    assert derivative(0.5, 2_000, store=tmp_path) == kept
